"""The checks of a server whose target is also available here."""

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
LENGTH = 3  # tokens of each text whose frequency is counted
GAMMA = 2  # drafts per round of these texts
SMALLEST = 1e-4  # the p-value below which distributions differ


@dataclass(frozen=True)
class Finding:
    """The result of one check. passed: None if only the engine is responsible. says: one line of
    figures, or the error."""

    check: str
    passed: bool | None
    says: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)


def found(check: str, ask: Callable[[], Finding]) -> Finding:
    """Run a check and measure its time; a failure of the program is a finding too."""
    began = time.monotonic()
    try:
        finding = ask()
    except SpecvizError as error:
        finding = Finding(check, False, str(error))
    seconds = time.monotonic() - began
    return replace(finding, check=check, seconds=round(seconds, 1))


def same_tokens(
    remote: Pair, local: Pair, settings: Settings, prompts: Sequence[str] = PROMPTS
) -> Finding:
    """Both lanes write the same tokens as with the same target here."""
    compared = 0
    differences: list[str] = []
    for prompt, lane in product(prompts, (speculate, baseline)):
        ours = _ids(lane(remote, prompt, settings))
        theirs = _ids(lane(local, prompt, settings))
        compared += len(theirs)
        differences += _differences(local, prompt, ours, theirs, settings)
    return _identity(compared, differences)


def its_own_text(completions: Completions, local: Pair) -> Finding:
    """The server's own greedy text is that of the same target here."""
    compared = 0
    differences: list[str] = []
    for prompt in PROMPTS:
        prompt_ids = local.encode(prompt)
        (ours,) = _written(completions, prompt_ids, GREEDY.max_new_tokens, 0.0)
        theirs = _ids(baseline(local, prompt, GREEDY))
        compared += len(theirs)
        differences += _differences(local, prompt, ours, theirs, GREEDY)
    return _identity(compared, differences)


def watched(url: str, local: Pair) -> Finding:
    """The server's own speculation as a lane: a trace that keeps the rules, with the text of the
    same target here, and counts that the server's counters confirm."""
    prompt = PROMPTS[0]
    trace = Trace.from_events(race(load_pair(url), prompt, GREEDY))
    check_trace(trace)
    ours = _ids(trace.rounds)
    theirs = _ids(baseline(local, prompt, GREEDY))
    differences = _differences(local, prompt, ours, theirs, GREEDY)
    identity = _identity(len(theirs), differences)
    seen = _counts_of(trace)
    counted: dict[str, int] | None = None
    if trace.end is not None:
        counted = trace.end.counted
    # A step whose drafts were all rejected looks like one without drafts, so its position is
    # uncertain.
    is_unsure = any(round.untold for round in trace.rounds)
    is_same = counted == seen
    agrees = counted is None or is_same
    if counted and is_unsure:
        agrees = agrees or counted["accepted"] == seen["accepted"] <= counted["drafted"]
    says = f"{trace.header.source}: {identity.says}; {seen['accepted']} of {seen['drafted']} "
    says += f"drafts kept in {seen['steps']} steps"
    if is_same:
        says += ", which its counters confirm"
    else:
        says += f", its counters: {counted}"
    if is_unsure:
        says += "; the positions of the rejected ones are not reported"
    return replace(
        identity,
        passed=identity.passed and agrees and seen["steps"] > 0,
        says=says,
        figures={**identity.figures, **seen, "counted": counted},
    )


def _counts_of(trace: Trace) -> dict[str, int]:
    """The counts that a server should report for a watched run."""
    steps = [round.drafted for round in trace.rounds if round.drafted]
    outcomes = [token.outcome for drafted in steps for token in drafted]
    return {
        "steps": len(steps),
        "drafted": len(outcomes),
        "accepted": outcomes.count("accepted"),
    }


def audited(url: str, minutes: float = 1.0) -> Finding:
    """The audit's verdicts on a server that speculates. Only the engine is responsible for whether
    its sampling is lossless."""
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
    return frequencies((continuation.ids for continuation in drawn), local.target)


def its_own_distribution(completions: Completions, local: Pair, count: int) -> Finding:
    """The same for texts that the server samples on its own. Only the engine is responsible for
    these."""
    drawn = _written(completions, [[0]] * count, LENGTH, 1.0, ignore_eos=True)
    finding = frequencies(map(tuple, drawn), local.target)
    distribution = "ANOTHER DISTRIBUTION"
    if finding.passed:
        distribution = "the target's own"
    return replace(finding, passed=None, says=f"{distribution}: {finding.says}")


def frequencies(texts: Iterable[tuple[int, ...]], target: Any) -> Finding:
    """Texts of `LENGTH` tokens after the token 0 against their probabilities from plain passes of
    `target`."""
    counts = Counter(texts)
    total = counts.total()
    probabilities = _text_probabilities(target)
    statistic, degrees = chi_square(counts, probabilities, total)
    p_value = tail(statistic, degrees) or 0.0
    says = f"{total} texts in {degrees + 1} cells: chi-square {statistic:.1f}"
    figures = {"texts": total, "chi_square": statistic, "p_value": p_value}
    passed = counts.keys() <= probabilities.keys() and p_value > SMALLEST
    return Finding("", passed, f"{says}, p = {p_value:.2g}", figures=figures)


def cost(remote: Pair, completions: Completions) -> Finding:
    """The cost of a round in bytes and milliseconds, and the server's own speed."""
    figures: dict[str, Any] = {}
    sentences = []
    for name, settings in (("greedy", GREEDY), ("temperature 0.8", SAMPLED)):
        rounds = list(speculate(remote, PROMPTS[0], settings))
        full_rounds = [round for round in rounds if len(round.drafted) == settings.gamma]
        if not full_rounds:
            full_rounds = rounds
        size = max(round.exchanged or 0 for round in full_rounds)
        milliseconds = 1e3 * median(round.verify_seconds for round in full_rounds)
        figures[name] = {"bytes": size, "milliseconds": milliseconds}
        sentences.append(f"{name}: {size:,} bytes and {milliseconds:.0f} ms a round")
    prompt_ids = remote.encode(PROMPTS[0])
    rate = completions.streaming_rate(prompt_ids, GREEDY.max_new_tokens)
    sentences.append(f"on its own it streams {rate:.1f} tokens/s")
    figures["tokens_per_second"] = rate
    return Finding("", True, "; ".join(sentences), figures=figures)


def killed(remote: Pair, kill: Callable[[], None]) -> Finding:
    """A server that dies during a run: the rounds so far are kept, and one sentence says what to
    do."""
    rounds: list[Round] = []
    try:
        for round in speculate(remote, PROMPTS[0], GREEDY):
            rounds.append(round)
            if len(rounds) == 3:
                kill()
    except ServerError as error:
        says = f"{len(rounds)} rounds kept: {error}"
        passed = len(rounds) == 3 and str(error).endswith(".")
        return Finding("", passed, says)
    return Finding("", False, f"the run continued for {len(rounds)} rounds")


def _identity(compared: int, differences: list[str]) -> Finding:
    says = "; ".join(differences)
    if not differences:
        says = f"{compared} tokens, all the same"
    passed = all(difference.startswith("a tie") for difference in differences)
    return Finding("", passed, says, figures={"tokens": compared, "parted": differences})


def _differences(
    local: Pair, prompt: str, ours: Sequence[int], theirs: Sequence[int], settings: Settings
) -> list[str]:
    """Where two texts diverge, and how far the worse candidate is behind the first choice."""
    position = first_difference(ours, theirs)
    if position is None:
        return []
    if not settings.greedy or position >= min(len(ours), len(theirs)):
        return [f"other tokens from {position} on after {prompt!r}"]
    before = [*local.encode(prompt), *theirs[:position]]
    behind = nats_behind(local, before, ours[position])
    name = "another token"
    if behind < TIED:
        name = "a tie"
    return [f"{name} at {position} after {prompt!r}: {behind:.2g} nats behind"]


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first position at which two texts differ, if there is one."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return position
    if len(ours) == len(theirs):
        return None
    return min(len(ours), len(theirs))


@torch.inference_mode()
def nats_behind(pair: Pair, ids: Sequence[int], token: int) -> float:
    """How far a token is behind the likeliest after `ids`, by one plain pass of the target."""
    target: Any = pair.target
    logits = target(torch.tensor([list(ids)])).logits[0, -1].double()
    return float(logits.max() - logits[token])


@torch.inference_mode()
def _text_probabilities(target: Any) -> dict[tuple[int, ...], float]:
    """The probabilities at temperature 1 of all texts of `LENGTH` tokens after the token 0."""
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        ids = torch.tensor([[0, *text] for text in texts])
        logits = target(ids).logits[:, -1]
        distributions = torch.softmax(logits.double(), -1).tolist()
        longer: dict[tuple[int, ...], float] = {}
        for (text, probability), distribution in zip(texts.items(), distributions, strict=True):
            for token, p in enumerate(distribution):
                continued = (*text, token)
                longer[continued] = probability * p
        texts = longer
    return texts


def _written(
    completions: Completions, prompt: list[Any], length: int, temperature: float, **more: Any
) -> list[list[int]]:
    """The ids of the texts that the server writes on its own after one prompt or several."""
    body = {
        "model": completions.model,
        "prompt": prompt,
        "max_tokens": length,
        **more,
        "temperature": temperature,
        "return_token_ids": True,
    }
    reply = completions.server.ask("completions", body)
    return [choice["token_ids"] for choice in reply["choices"]]


def _ids(rounds: Iterable[Round]) -> list[int]:
    return [token.id for round in rounds for token in round.emitted]
