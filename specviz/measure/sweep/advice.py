"""What to do, in words: speculate, do not, or measure more; and the page's address with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from ...environment import BUILTIN
from ...runs.uncertainty import NEAR
from .deploy import engine_settings
from .types import Answer, Configuration, Machine, Measured, Recommendation, Row, SweepRequest

FEWEST_PROMPTS = 3  # and runs without disturbance: below that nothing is recommended
BUSY_SHARE = 0.25  # of the runs that were disturbed; from here on the doubt is told


def recommendations(
    rows: Sequence[Row], machine: Machine | None, request: SweepRequest
) -> tuple[Recommendation, ...]:
    """One recommendation for each temperature, in the order of the request."""
    return tuple(
        _recommendation(
            [row for row in rows if row.configuration.temperature == temperature],
            temperature,
            machine,
        )
        for temperature in request.temperatures
    )


def _recommendation(
    rows: Sequence[Row], temperature: float, machine: Machine | None
) -> Recommendation:
    best = next((row for row in rows if row.mark == "best"), None)
    reasons: tuple[str, ...] = ()
    doubt, to_use = "", None
    answer: Answer
    if rows and all(row.status == "left out" for row in rows):
        answer, headline = "do not speculate", "This pair cannot speculate with these drafters."
        reasons = tuple(dict.fromkeys(row.note for row in rows))
    elif best is None or best.measured is None or best.measured.speedup is None:
        answer, headline = "cannot tell", "Nothing was measured long enough to tell."
    else:
        answer, headline = _answer(best, best.measured, rows)
        reasons = tuple(_reasons(best, best.measured, rows, answer))
        doubt = " ".join(_doubts(best.measured, rows))
        to_use = best.configuration if answer == "speculate" else None
    settings = engine_settings(to_use, machine) if to_use and machine is not None else ()
    return Recommendation(temperature, answer, headline, reasons, doubt, to_use, settings)


def _promising(rows: Sequence[Row]) -> Row | None:
    """The row that promises most of those that may be better than the best measured one, and were
    not measured on enough prompts to tell."""
    return max((row for row in rows if row.mark == "open"), key=_promise, default=None)


def _promise(row: Row) -> float:
    return (row.predicted.speedup if row.predicted else None) or _speed(row)


def _speed(row: Row) -> float:
    found = row.measured.speedup if row.measured else None
    return found.value if found else 0.0


def _answer(best: Row, m: Measured, rows: Sequence[Row]) -> tuple[Answer, str]:
    found = m.speedup
    assert found is not None
    said = f"{found.value:.2f} times as fast as the target alone"
    name, promising = best.configuration.label, _promising(rows)
    if m.doubts and m.runs - m.doubts < min(FEWEST_PROMPTS, m.runs):
        busy = f"the machine was busy in {m.doubts} of {m.runs} runs"
        return "cannot tell", f"No firm answer: {busy}, in which {name} was {said}."
    if m.prompts < FEWEST_PROMPTS or found.low is None or found.high is None:
        few = f"{name} was {said} on {_prompts(m.prompts)}, which is too few to tell"
        return "cannot tell", f"{few}: sweep at least three prompts, or longer."
    said, unknown = f"{said} ({found.low:.2f} to {found.high:.2f})", ""
    if promising is not None:
        how = "measured too little to tell" if promising.measured else "not measured"
        unknown = f" {promising.configuration.label} may be better, {how}."
    if found.high < 1 + NEAR and not (promising and _promise(promising) >= 1 + NEAR):
        no = f"Do not speculate here: the best row, {name}, is {said}.{unknown}"
        return "do not speculate", no
    if found.low > 1.0 and found.value >= 1 + NEAR:
        return "speculate", f"Use {name}: {said}.{unknown}"
    return "cannot tell", f"{name} is {said}: measure more prompts before you decide.{unknown}"


def _reasons(best: Row, m: Measured, rows: Sequence[Row], answer: Answer) -> Iterator[str]:
    price = m.tau / m.speedup.value if m.tau and m.speedup else 0.0
    if price >= 1:  # it has a whole target pass
        yield f"A round yields {m.tau:.2f} tokens for the price of {price:.2f} target passes."
    if m.c is not None and m.alpha is not None:
        yield f"A guess costs {m.c:.2f} of a pass, and {m.alpha:.0%} of those judged are accepted."
        if answer == "do not speculate" and m.c >= m.alpha:
            yield "A guess costs more than it brings: find a smaller or a better draft."
    ordered = sorted((one.value, kind) for kind, one in m.by_kind.items())
    if ordered and ordered[-1][0] >= (1 + NEAR) * ordered[0][0]:
        (low, worst), (high, finest) = ordered[0], ordered[-1]
        yield f"It depends on the text: {high:.2f} on {finest}, {low:.2f} on {worst}."
    tied = [row for row in rows if row.mark == "tied"]
    if tied:
        alike = "; ".join(row.configuration.label for row in tied)
        yield f"On the prompts that both ran, noise cannot tell it from {alike}."
    least = best.memory or 0  # bytes; 0 if unknown
    cheaper = [row for row in tied if row.memory is not None and row.memory < least]
    if cheaper and answer == "speculate":
        name = max(cheaper, key=_speed).configuration.label
        yield f"Of these, {name} needs no second model: prefer it if memory is short."


def _doubts(m: Measured, rows: Sequence[Row]) -> Iterator[str]:
    if m.doubts >= BUSY_SHARE * m.runs:
        yield f"The machine was busy in {m.doubts} of {m.runs} runs: sweep again when it is quiet."
    promising = _promising(rows)
    if promising is not None:
        name, known = promising.configuration.label, promising.predicted
        seen = promising.measured.prompts if promising.measured else 0
        what = f"predicted at {known.speedup:.2f}" if known and known.speedup else "ahead so far"
        ran = f"it ran on {_prompts(seen)} only" if seen else "it was not measured"
        yield f"{name} is {what}, and {ran}: sweep longer."
    unmeasured = sum(row.status == "planned" for row in rows)
    if unmeasured:
        yield f"{unmeasured} rows were neither measured nor predicted: the sweep was too short."
    elif FEWEST_PROMPTS <= m.prompts < 2 * FEWEST_PROMPTS:
        yield f"It was measured on {_prompts(m.prompts)} only."


def _prompts(count: int) -> str:
    return "one prompt" if count == 1 else f"{count} prompts"


def page_query(row: Configuration, request: SweepRequest, machine: Machine | None) -> str:
    """The query of the page's address with the settings of the row, such as
    "?drafter=ngram&gamma=5&temperature=0"; `assets/page/run/address.js` reads it."""
    is_named = machine is not None and machine.pair not in (BUILTIN, "custom")
    values = {
        "pair": machine.pair if machine is not None and is_named else "",
        "drafter": row.drafter,
        "gamma": row.gamma,
        "gamma_policy": row.policy,
        "temperature": f"{row.temperature:g}",
        "top_k": request.base.top_k or "",
        "top_p": f"{request.base.top_p:g}" if request.base.top_p < 1.0 else "",
    }
    return "?" + urlencode({name: value for name, value in values.items() if value != ""})
