"""What is asked of a server that holds a target which is here as well."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import median
from typing import Any

import torch

from specviz import (
    Pair,
    Round,
    Settings,
    SpecvizError,
    Trace,
    audit_server,
    baseline,
    load_pair,
    race,
    speculate,
)
from specviz.base.errors import ServerError
from specviz.inspect.equivalence import chi_square, tail
from specviz.inspect.prove import draw_continuations
from specviz.runs.identities import check_trace
from specviz.sides.served.adapters import Completions

PROMPTS = ("Once upon a time", "The ship went down")
GREEDY = Settings(max_new_tokens=48)
SAMPLED = replace(GREEDY, temperature=0.8, top_p=0.95, seed=11)
TIED = 1e-3  # nats: far above fp32's rounding in other kernels, far below a real preference
LENGTH, GAMMA = 3, 2  # of each text whose frequency is counted
SMALLEST = 1e-4  # the p-value below which a distribution is another one


@dataclass(frozen=True)
class Finding:
    """The result of one check. passed: None for what only the engine answers for. says: one line
    of figures, or what went wrong."""

    check: str
    passed: bool | None
    says: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


def found(check: str, ask: Callable[[], Finding]) -> Finding:
    """What a check finds, with its time; a failure of the program is a finding too."""
    began = time.monotonic()
    try:
        finding = ask()
    except SpecvizError as error:
        finding = Finding(check, False, str(error))
    return replace(finding, check=check, seconds=round(time.monotonic() - began, 1))


def same_tokens(
    remote: Pair, local: Pair, settings: Settings, prompts: Sequence[str] = PROMPTS
) -> Finding:
    """Both lanes write what they write with the same target here, token for token."""
    compared, parted = 0, []
    for prompt, lane in product(prompts, (speculate, baseline)):
        ours, theirs = (_ids(lane(pair, prompt, settings)) for pair in (remote, local))
        compared += len(theirs)
        parted += _parted(local, prompt, ours, theirs, settings)
    return _identity(compared, parted)


def its_own_text(completions: Completions, local: Pair) -> Finding:
    """The server writes by itself the greedy text of the same target here."""
    compared, parted = 0, []
    for prompt in PROMPTS:
        (ours,) = _written(completions, local.encode(prompt), GREEDY.max_new_tokens, 0.0)
        theirs = _ids(baseline(local, prompt, GREEDY))
        compared += len(theirs)
        parted += _parted(local, prompt, ours, theirs, GREEDY)
    return _identity(compared, parted)


def watched(url: str, local: Pair) -> Finding:
    """The server's own speculation as a lane: a trace that keeps the rules, with the text of the
    same target here, and counts that the server's counters confirm."""
    trace = Trace.from_events(race(load_pair(url), PROMPTS[0], GREEDY))
    check_trace(trace)
    theirs = _ids(baseline(local, PROMPTS[0], GREEDY))
    parted = _parted(local, PROMPTS[0], _ids(trace.rounds), theirs, GREEDY)
    finding = _identity(len(theirs), parted)
    steps = [one for one in trace.rounds if one.drafted]
    judged = [token.outcome for one in steps for token in one.drafted]
    seen = {"steps": len(steps), "drafted": len(judged), "accepted": judged.count("accepted")}
    counted = trace.end.counted if trace.end else None
    # A step whose drafts were all refused looks like one without drafts: it may be any of several.
    unsure = any(one.untold for one in trace.rounds)
    same = counted == seen
    fits = counted and unsure and counted["accepted"] == seen["accepted"] <= counted["drafted"]
    agrees = counted is None or same or fits
    says = f"{trace.header.source}: {finding.says}; {seen['accepted']} of {seen['drafted']} "
    says += f"drafts kept in {seen['steps']} steps"
    says += ", as its counters say" if same else f", its counters: {counted}"
    says += "; where the refused ones stood is not told" if unsure else ""
    return replace(
        finding,
        passed=finding.passed and bool(agrees) and bool(seen["steps"]),
        says=says,
        figures={**finding.figures, **seen, "counted": counted},
    )


def audited(url: str, minutes: float = 1.0) -> Finding:
    """What the audit says of a server that speculates by itself. Whether what it samples is
    lossless only the engine answers for."""
    report = audit_server(url, questions=("speculating", "lossless"), minutes=minutes)
    faults = sum(check.faults for check in report.greedy)
    speculates = report.verdict("speculating").answer == "yes"
    says = " ".join(verdict.sentence for verdict in report.verdicts)
    figures = {test.name: test.p_value for test in report.sampled}
    return Finding("audited", speculates and not faults, says, figures=figures)


def same_distribution(remote: Pair, local: Pair, count: int) -> Finding:
    """Whole texts at temperature 1 have the target's own frequencies: Pearson's chi-square."""
    settings = Settings(temperature=1.0, gamma=GAMMA, ignore_eos=True, seed=3)
    drawn = draw_continuations(remote, [0], settings, count, LENGTH, "speculative")
    return frequencies((one.ids for one in drawn), local.target)


def its_own_distribution(completions: Completions, local: Pair, count: int) -> Finding:
    """The same of texts that the server samples by itself, which is its own affair."""
    drawn = _written(completions, [[0]] * count, LENGTH, 1.0, ignore_eos=True)
    counted = frequencies(map(tuple, drawn), local.target)
    law = "the target's own" if counted.passed else "ANOTHER DISTRIBUTION"
    return replace(counted, passed=None, says=f"{law}: {counted.says}")


def frequencies(texts: Iterable[tuple[int, ...]], target: Any) -> Finding:
    """Texts of `LENGTH` tokens after the token 0 against their probabilities, which plain passes of
    `target` give."""
    seen, law = Counter(texts), _law(target)
    statistic, degrees = chi_square(seen, law, seen.total())
    p_value = tail(statistic, degrees) or 0.0
    says = f"{seen.total()} texts in {degrees + 1} cells: chi-square {statistic:.1f}"
    figures = {"texts": seen.total(), "chi_square": statistic, "p_value": p_value}
    passed = seen.keys() <= law.keys() and p_value > SMALLEST
    return Finding("", passed, f"{says}, p = {p_value:.2g}", figures=figures)


def cost(remote: Pair, completions: Completions) -> Finding:
    """What a round costs in bytes and milliseconds, and the server's own speed beside it."""
    figures = {}
    for name, settings in (("greedy", GREEDY), ("temperature 0.8", SAMPLED)):
        rounds = list(speculate(remote, PROMPTS[0], settings))
        whole = [r for r in rounds if len(r.drafted) == settings.gamma] or rounds
        sizes, times = ([r.exchanged or 0 for r in whole], [r.verify_seconds for r in whole])
        figures[name] = {"bytes": max(sizes), "milliseconds": 1e3 * median(times)}
    ids, count = remote.encode(PROMPTS[0]), GREEDY.max_new_tokens
    own = completions.streaming_rate(ids, count)
    says = "; ".join(
        f"{name}: {one['bytes']:,} bytes and {one['milliseconds']:.0f} ms a round"
        for name, one in figures.items()
    )
    says += f"; by itself it streams {own:.1f} tokens/s"
    return Finding("", True, says, figures={**figures, "tokens_per_second": own})


def killed(remote: Pair, kill: Callable[[], None]) -> Finding:
    """A server that dies in mid-run: what was written is kept, and one sentence says what to do."""
    kept: list[Round] = []
    try:
        for one in speculate(remote, PROMPTS[0], GREEDY):
            kept.append(one)
            if len(kept) == 3:
                kill()
    except ServerError as error:
        says = f"{len(kept)} rounds kept: {error}"
        return Finding("", len(kept) == 3 and str(error).endswith("."), says)
    return Finding("", False, f"the run went on for {len(kept)} rounds")


def _identity(compared: int, parted: list[str]) -> Finding:
    says = f"{compared} tokens, all the same" if not parted else "; ".join(parted)
    wrong = [one for one in parted if not one.startswith("a tie")]
    return Finding("", not wrong, says, figures={"tokens": compared, "parted": parted})


def _parted(
    local: Pair, prompt: str, ours: Sequence[int], theirs: Sequence[int], settings: Settings
) -> list[str]:
    """Where two texts part, and how far the worse candidate is behind the first choice."""
    place = first_difference(ours, theirs)
    if place is None:
        return []
    if not settings.greedy or place >= min(len(ours), len(theirs)):
        return [f"other tokens from {place} on after {prompt!r}"]
    behind = nats_behind(local, [*local.encode(prompt), *theirs[:place]], ours[place])
    name = "a tie" if behind < TIED else "another token"
    return [f"{name} at {place} after {prompt!r}: {behind:.2g} nats behind"]


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first place at which two texts differ, if there is one."""
    if list(ours) == list(theirs):
        return None
    same = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(same, min(len(ours), len(theirs)))


@torch.inference_mode()
def nats_behind(pair: Pair, ids: Sequence[int], token: int) -> float:
    """How far a token is behind the likeliest after `ids`, by one plain pass of the target."""
    target: Any = pair.target
    row = target(torch.tensor([list(ids)])).logits[0, -1].double()
    return float(row.max() - row[token])


@torch.inference_mode()
def _law(target: Any) -> dict[tuple[int, ...], float]:
    """The probabilities at temperature 1 of all texts of `LENGTH` tokens after the token 0."""
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        rows = target(torch.tensor([[0, *text] for text in texts])).logits[:, -1]
        shares = torch.softmax(rows.double(), -1).tolist()
        texts = {
            (*text, token): p * share
            for (text, p), row in zip(texts.items(), shares, strict=True)
            for token, share in enumerate(row)
        }
    return texts


def _written(
    completions: Completions, prompt: list[Any], length: int, temperature: float, **more: Any
) -> list[list[int]]:
    """The ids of the texts that the server writes by itself after one prompt or several."""
    asked = {"model": completions.model, "prompt": prompt, "max_tokens": length, **more}
    asked |= {"temperature": temperature, "return_token_ids": True}
    answer = completions.server.ask("completions", asked)
    return [choice["token_ids"] for choice in answer["choices"]]


def _ids(rounds: Iterable[Round]) -> list[int]:
    return [token.id for one in rounds for token in one.emitted]
