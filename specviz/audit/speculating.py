"""Is it speculating? Judge by the streams' steps and by the server's counters. The two are
compared: counters that contradict the streams are not believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..remote.identity import VLLM, Counted, accepted_by_position, counted_in, moved
from ..sides.watched.steps import Step
from .asking import AuditedModel, Streamed
from .report import Answer, Drafting, Evidence, Verdict

MIN_MERGED_TOKENS = 1.2  # tokens a chunk, on average, of chunks with several tokens
MIN_CLAIMED = 0.2  # accepted drafts a token that contradict chunks of one token
MAX_POSITIONS = 16


class Counters(NamedTuple):
    """The increase of a server's counters. by_position: accepted drafts, by the position in their
    step."""

    counted: Counted
    by_position: dict[int, int]


def counters_between(before: str | None, after: str | None, model: str) -> Counters | None:
    """The increase of the counters between two texts of /metrics; None if they are missing or were
    reset."""
    if before is None or after is None:
        return None
    counted_before = counted_in(before, model)
    counted_after = counted_in(after, model)
    counted = moved(counted_before, counted_after)
    if counted is None:
        return None
    earlier = accepted_by_position(before, model)
    by_position: dict[int, int] = {}
    for position, accepted in accepted_by_position(after, model).items():
        by_position[position] = accepted - earlier.get(position, 0)
    return Counters(counted, by_position)


def drafting_of(
    streams: Sequence[Streamed], counters: Counters | None, is_loaded: bool | None
) -> Drafting:
    """The server's speculation in these streams. Counters replace the drafts of streams that report
    none."""
    tokens = sum(stream.tokens for stream in streams)
    chunks = sum(stream.chunks for stream in streams)
    if any(stream.drafted is not None for stream in streams):
        steps: list[Step] = []
        for stream in streams:
            steps += [step for step in stream.steps if step.drafted]
        return Drafting(
            tokens=tokens,
            chunks=chunks,
            steps=len(steps) or None,
            drafted=sum(stream.drafted or 0 for stream in streams),
            accepted=sum(stream.accepted or 0 for stream in streams),
            by_position=kept_by_position(steps),
            is_loaded=is_loaded,
        )
    if counters is None:
        return Drafting(tokens, chunks, is_loaded=is_loaded)
    steps_counted = counters.counted["steps"]
    return Drafting(
        tokens=tokens,
        chunks=chunks,
        steps=steps_counted,
        drafted=counters.counted["drafted"],
        accepted=counters.counted["accepted"],
        by_position=_shares(counters.by_position, steps_counted),
        is_loaded=is_loaded,
    )


def kept_by_position(steps: Sequence[Step]) -> tuple[float, ...]:
    """The share of steps that kept their first k drafts, of those that drafted as many, for k = 1,
    2, ..."""
    shares: list[float] = []
    lengths = [step.drafted or 0 for step in steps]
    longest = max(lengths, default=0)
    for position in range(1, min(longest, MAX_POSITIONS) + 1):
        drafted = [step for step in steps if (step.drafted or 0) >= position]
        kept = sum((step.accepted or 0) >= position for step in drafted)
        shares.append(kept / len(drafted))
    return tuple(shares)


def _shares(by_position: dict[int, int], steps: int) -> tuple[float, ...]:
    if not steps:
        return ()
    positions = range(min(len(by_position), MAX_POSITIONS))
    return tuple(by_position.get(position, 0) / steps for position in positions)


def speculating_verdict(
    model: AuditedModel, drafting: Drafting, counters: Counters | None
) -> Verdict:
    """The answer to the first question."""
    evidence = list(_of_the_streams(model, drafting))
    evidence += _of_the_counters(counters, drafting)
    if drafting.is_loaded is not None:
        has_draft = "has no draft loaded"
        if drafting.is_loaded:
            has_draft = "has a draft to speculate with"
        evidence.append(Evidence("/slots", f"The server reports that it {has_draft}."))
    conclusion = _conclusion(model, drafting, counters)
    return Verdict(
        question="speculating",
        answer=conclusion.answer,
        sentence=conclusion.sentence,
        evidence=tuple(evidence),
        doubt=conclusion.doubt,
    )


class Conclusion(NamedTuple):
    """An answer with its sentence, and what could make it wrong."""

    answer: Answer
    sentence: str
    doubt: str = ""


def _conclusion(model: AuditedModel, drafting: Drafting, counters: Counters | None) -> Conclusion:
    contradiction = _contradiction(model, drafting, counters)
    if contradiction:
        return Conclusion("cannot be told", f"Unknown, because {contradiction}.")
    if drafting.drafted:
        return _of_drafts(drafting, counters)
    if drafting.drafted == 0 or model.tells_drafts:
        nothing = f"nothing was drafted in {drafting.tokens} tokens"
        if drafting.is_loaded:
            nothing = f"a draft is loaded, and {nothing}"
        return Conclusion("no", f"No: {nothing}.")
    if drafting.chunks and drafting.tokens > MIN_MERGED_TOKENS * drafting.chunks:
        mean = drafting.tokens / drafting.chunks
        return Conclusion(
            "cannot be told",
            f"Unknown, because the server reports nothing about drafts; its chunks have {mean:.1f} "
            "tokens on average, as with a server that speculates or one that batches its output.",
        )
    if model.identity.engine == VLLM:
        return Conclusion(
            "no",
            "No: each token came in a chunk of its own, and the server has no draft counters, "
            "which vLLM has if it speculates.",
            "A proxy that hides /metrics and splits chunks would look the same.",
        )
    return Conclusion(
        "cannot be told",
        "Unknown, because the server reports nothing about drafts, neither in its answers nor in "
        "/metrics.",
    )


def _of_drafts(drafting: Drafting, counters: Counters | None) -> Conclusion:
    """The conclusion if something was drafted."""
    drafted = drafting.drafted or 0
    kept = drafting.accepted or 0
    sentence = (
        f"Yes: in {drafting.tokens} tokens {kept} of {drafted} drafts were kept "
        f"({kept / drafted:.0%})"
    )
    if not kept:
        sentence += ", so all of them were wasted"
    doubt = ""
    if counters is not None and counters.counted["drafted"] > drafted:
        doubt = "Its counters rose by more than these texts explain: others are using the server."
    return Conclusion("yes", f"{sentence}.", doubt)


def _contradiction(
    model: AuditedModel, drafting: Drafting, counters: Counters | None
) -> str | None:
    """Why counters and streams cannot both be right; None if they can."""
    if counters is None:
        return None
    claimed = counters.counted
    if claimed["accepted"] > claimed["drafted"]:
        return (
            f"its counters claim more accepted drafts ({claimed['accepted']}) than drafted ones "
            f"({claimed['drafted']})"
        )
    tells_itself = model.tells_drafts
    if tells_itself and not drafting.drafted and claimed["drafted"]:
        return (
            f"its counters claim {claimed['drafted']} drafts, and its answers report none: "
            "somebody else is using the server, or its counters are wrong"
        )
    if tells_itself and drafting.drafted and claimed["drafted"] < drafting.drafted:
        return (
            f"its answers report {drafting.drafted} drafts, and its counters rose by only "
            f"{claimed['drafted']}"
        )
    one_by_one = not tells_itself and drafting.tokens <= MIN_MERGED_TOKENS * drafting.chunks
    if one_by_one and claimed["accepted"] > MIN_CLAIMED * drafting.tokens:
        return (
            f"its counters claim {claimed['accepted']} accepted drafts, and its tokens came one by "
            "one: somebody else is using the server, or its counters are wrong"
        )
    return None


def _of_the_streams(model: AuditedModel, drafting: Drafting) -> list[Evidence]:
    facts: list[Evidence] = []
    if not model.tells_drafts and drafting.chunks:
        mean = drafting.tokens / drafting.chunks
        facts.append(
            Evidence(
                "stream",
                f"{drafting.tokens} tokens came in {drafting.chunks} chunks, {mean:.2f} in each.",
            )
        )
    if model.tells_drafts:
        drafts = f"{drafting.drafted or 0} drafted and {drafting.accepted or 0} accepted tokens"
        facts.append(Evidence("timings", f"The answers report {drafts}."))
    if drafting.by_position:
        shares = ", ".join(f"{share:.0%}" for share in drafting.by_position)
        facts.append(
            Evidence("positions", f"The first 1, 2, ... drafts were kept in {shares} of the steps.")
        )
    return facts


def _of_the_counters(counters: Counters | None, drafting: Drafting) -> list[Evidence]:
    if counters is None:
        return [Evidence("/metrics", "The server has no draft counters.")]
    counted = counters.counted
    return [
        Evidence(
            "/metrics",
            f"Its counters rose by {counted['drafted']} drafted and {counted['accepted']} accepted "
            f"tokens in {counted['steps']} steps.",
        )
    ]
