"""Findings of the doctor about servers: one that holds a target, one that is watched."""

from __future__ import annotations

from ..sides.served.target import RemoteTarget
from ..sides.watched.stream import Engine
from .findings import Finding


def watched_findings(engine: Engine, alone: Engine | None, *, told: bool) -> list[Finding]:
    """What can be seen of a server that speculates by itself. told: whether it tells what its steps
    draft."""
    steps = (
        Finding("good", "steps", "the server tells what each of its steps drafts and accepts.")
        if told
        else Finding(
            "warning",
            "steps",
            "the server does not tell what its steps draft: start vLLM with "
            "--per-request-spec-decode-metrics detailed.",
        )
    )
    baseline = (
        Finding("good", "baseline", f"{alone.identity.software} answers for the target alone.")
        if alone
        else Finding("warning", "baseline", "without a second server there is no ratio.")
    )
    software = engine.identity.software
    times = "times are the client's, from chunk to chunk: with the network and other users."
    return [
        Finding("good", "server", f"{software} answers; its own speculation is watched."),
        steps,
        baseline,
        Finding("warning", "times", times),
    ]


def served_findings(target: RemoteTarget, draft: str) -> list[Finding]:
    """What a target on a server can do. draft: the name of the draft, as shown."""
    whole = target.listed >= target.vocab
    lists = (
        f"the server lists {target.listed} log-probabilities: greedy runs are exact, and others "
        f"with top_k from 1 to {target.listed}"
    )
    draws = ", or with the verdict token, for which it draws; beta is then unknown"
    exact = (
        "the server gives whole distributions: every setting is exact."
        if whole
        else f"{lists}{draws if not whole and target.draws else ''}."
    )
    context = (
        f"of {target.identity.context:,} tokens"
        if target.identity.context
        else "of a length that it does not tell"
    )
    return [
        Finding("good", "server", f"{target.identity.software} answers, with a context {context}."),
        Finding("good", "tokenizer", f"the server splits and spells text as {draft} does."),
        Finding("good" if whole else "warning", "distributions", exact),
        Finding(
            "warning",
            "times",
            "times are those of requests: with the network, the server's queue and its other "
            "users.",
        ),
    ]
