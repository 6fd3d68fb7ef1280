"""Is it lossless? The verdict over greedy and sampled texts."""

from __future__ import annotations

from collections.abc import Sequence

from ..inspect.equivalence import SIGNIFICANCE
from .report import Evidence, Greedy, Sampled, Verdict
from .sampled import MIN_CAUGHT


def lossless_verdict(
    greedy: Sequence[Greedy], sampled: Sequence[Sampled], note: str, doubt: str
) -> Verdict:
    """The answer to the third question. note: why something was not checked; may be empty."""
    evidence = (*map(_of_greedy, greedy), *map(_of_sampled, sampled))
    faults = sum(check.faults for check in greedy)
    refused = [test for test in sampled if _is_refused(test)]
    if faults or refused:
        reasons: list[str] = []
        if faults:
            reasons.append(f"{faults} greedy tokens are not the target's choice")
        if refused:
            worst = min(refused, key=lambda test: test.p_value or 0.0)
            reasons.append(f"{worst.name}: p = {worst.p_value:.2g}")
        return Verdict(
            question="lossless",
            answer="no",
            sentence=f"No: {'; '.join(reasons)}.",
            evidence=evidence,
            doubt=_doubt_of_no(greedy),
        )
    because = _untold(greedy, sampled, note)
    if because:
        known = _known(greedy, sampled)
        return Verdict(
            question="lossless",
            answer="cannot be told",
            sentence=f"Unknown, because {because}.{known}",
            evidence=evidence,
            doubt=doubt,
        )
    tokens = sum(check.tokens for check in greedy)
    samples = max(test.samples for test in sampled)
    sentence = (
        f"Yes: {tokens} greedy tokens are the target's, and {samples} sampled texts have its "
        "distribution, as far as that many can show."
    )
    return Verdict(
        question="lossless", answer="yes", sentence=sentence, evidence=evidence, doubt=doubt
    )


def _is_refused(test: Sampled) -> bool:
    return test.p_value is not None and test.p_value < SIGNIFICANCE


def _doubt_of_no(greedy: Sequence[Greedy]) -> str:
    if any(check.faults for check in greedy):
        return ""
    return f"A server that keeps the distribution fails once in {1 / SIGNIFICANCE:,.0f} tests."


def _untold(greedy: Sequence[Greedy], sampled: Sequence[Sampled], note: str) -> str:
    """The reason why the answer cannot be yes, as the end of a sentence; empty if it can."""
    if not greedy:
        return note or "no greedy text could be judged"
    places = [mismatch for check in greedy for mismatch in check.places]
    open_places = sum(mismatch.verdict == "cannot be told" for mismatch in places)
    if open_places:
        return (
            f"{open_places} greedy tokens are further apart than rounding explains and not far "
            "enough for a fault, or their log-probabilities are not listed"
        )
    if not sampled:
        return note or "no sampled text could be judged"
    # Tests of whole texts decide: first tokens do not come from drafts.
    whole_texts = [test for test in sampled if test.length > 1]
    if not whole_texts:
        return note or "sampled texts differ too much to compare more than their first tokens"
    best = max(whole_texts, key=lambda test: test.control.caught)
    if best.control.caught < MIN_CAUGHT:
        return (
            f"{best.samples} sampled texts are too few: only {best.control.caught:.0%} of such "
            f"tests would catch {best.control.wrong}, so allow more --minutes"
        )
    return ""


def _known(greedy: Sequence[Greedy], sampled: Sequence[Sampled]) -> str:
    """The partial results that are known anyway."""
    known: list[str] = []
    if greedy and not any(check.places for check in greedy):
        known.append("Its greedy texts are right.")
    if sampled:
        known.append("Its sampled texts show no difference.")
    return "".join(f" {sentence}" for sentence in known)


def _of_greedy(check: Greedy) -> Evidence:
    ties = sum(mismatch.verdict == "tie" for mismatch in check.places)
    untold = sum(mismatch.verdict == "cannot be told" for mismatch in check.places)
    parts = [f"{check.tokens} tokens after {check.prompts} prompts"]
    if not check.places:
        parts.append("all are the target's choice")
    if ties:
        parts.append(f"{ties} ties within rounding ({check.rounding:.2g} nats)")
    if check.faults:
        worst = max(check.places, key=lambda mismatch: mismatch.behind or 0.0)
        parts.append(
            f"{check.faults} faults, such as “{worst.ours}” instead of “{worst.expected}”, "
            f"{worst.behind:.2g} nats behind"
        )
    if untold:
        parts.append(f"{untold} undecided")
    return Evidence(f"greedy, against {check.against}", f"{'; '.join(parts)}.")


def _of_sampled(test: Sampled) -> Evidence:
    p_value = "no test is possible because all texts are the same"
    if test.p_value is not None:
        p_value = (
            f"chi-square {test.statistic:.1f} with {test.degrees} degrees of freedom, "
            f"p = {test.p_value:.2g}"
        )
    return Evidence(
        f"sampled, {test.name}",
        f"{test.samples} texts in {test.cells} cells: {p_value}. Control: {test.control.wrong} is "
        f"caught in {test.control.caught:.0%} of {test.control.trials} such tests.",
    )
