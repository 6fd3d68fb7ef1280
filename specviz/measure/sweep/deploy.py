"""The recommendation of a sweep: whether to speculate, in words; the page's address with it; and
the settings in other engines' terms, with the version of each engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from ...base.environment import BUILTIN
from ...core.registry import drafter_kind
from ...runs.uncertainty import NEAR, Estimate
from .types import (
    Answer,
    Configuration,
    EngineSettings,
    Machine,
    Measured,
    Recommendation,
    Row,
    SweepRequest,
)

MIN_PROMPTS = 3  # with fewer nothing is recommended
MIN_RUNS = 3  # without delays; with fewer nothing is recommended
BUSY_SHARE = 0.25  # share of delayed runs above which a doubt says so


class Source(NamedTuple):
    """The version of an engine or of its documentation, and the address of the latter."""

    version: str
    address: str


SOURCES = {
    "transformers": Source(
        version="5.23.0",
        address="https://huggingface.co/docs/transformers/main/en/assisted_decoding",
    ),
    "vLLM": Source(
        version="documentation of November 2026, commit 04329df (release 0.33.0 is the newest)",
        address="https://docs.vllm.ai/en/latest/features/speculative_decoding/",
    ),
    "SGLang": Source(
        version="0.5.23",
        address="https://docs.sglang.io/docs/advanced_features/speculative_decoding",
    ),
    "llama.cpp": Source(
        version="tools/server/README.md of November 2026, commit 00dc805",
        address="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
}
HAVE_POLICY = {
    "heuristic": ("transformers",),
    "optimal": ("transformers",),
    "confidence": ("transformers", "llama.cpp"),
}
"""The engines that have a policy like this one."""


def recommendations(
    rows: Sequence[Row], machine: Machine | None, request: SweepRequest
) -> tuple[Recommendation, ...]:
    """One recommendation for each temperature, in the order of the request."""
    advice = []
    for temperature in request.temperatures:
        rows_here = [row for row in rows if row.temperature == temperature]
        advice.append(_recommendation(rows_here, machine, temperature))
    return tuple(advice)


def _recommendation(
    rows: Sequence[Row], machine: Machine | None, temperature: float
) -> Recommendation:
    """rows: of this temperature."""
    if rows and all(row.status == "left out" for row in rows):
        return Recommendation(
            temperature=temperature,
            answer="do not speculate",
            headline="This pair cannot speculate with these drafters.",
            reasons=tuple(dict.fromkeys(row.note for row in rows)),
        )
    best = next((row for row in rows if row.mark == "best"), None)
    if best is None or best.measured is None or best.speedup is None:
        return Recommendation(
            temperature=temperature,
            answer="cannot tell",
            headline="No measurement was long enough to tell.",
        )
    # The row with the highest prediction among those that ran on too few prompts to tell.
    rival = max((row for row in rows if row.mark == "open"), key=_promise, default=None)
    answer, headline = _answer(best, best.measured, best.speedup, rival)
    recommended: Configuration | None = None
    settings: tuple[EngineSettings, ...] = ()
    if answer == "speculate":
        recommended = best.configuration
        if machine is not None:
            others = sorted(filter(_pays, rows), key=_speed, reverse=True)
            settings = engine_settings([best, *others], machine)
    return Recommendation(
        temperature=temperature,
        answer=answer,
        headline=headline,
        reasons=tuple(_reasons(best, best.measured, rows, answer)),
        doubt=" ".join(_doubts(best.measured, rows, rival)),
        best=recommended,
        settings=settings,
    )


def _pays(row: Row) -> bool:
    """Whether a row other than the best one is faster than the target alone beyond noise, on enough
    prompts."""
    measured = row.measured
    if measured is None or measured.speedup is None or row.mark in ("best", "open"):
        return False
    has_prompts = measured.prompts >= MIN_PROMPTS
    return has_prompts and not _is_too_busy(measured) and _is_faster(measured.speedup)


def _is_too_busy(m: Measured) -> bool:
    """Whether too few runs of a row were without delays."""
    return m.doubts > 0 and m.runs - m.doubts < MIN_RUNS


def _is_faster(speedup: Estimate) -> bool:
    return speedup.low is not None and speedup.low > 1.0 and speedup.value >= 1 + NEAR


def _promise(row: Row) -> float:
    return row.promise or _speed(row)


def _speed(row: Row) -> float:
    if row.speedup is None:
        return 0.0
    return row.speedup.value


def _answer(best: Row, m: Measured, speedup: Estimate, rival: Row | None) -> tuple[Answer, str]:
    """The answer and its headline. m, speedup: of the best row."""
    name = best.configuration.label
    fast = f"{speedup.value:.2f} times as fast as the target alone"
    if _is_too_busy(m):
        busy = f"the machine was busy in {m.doubts} of {_runs(m.runs)}"
        return "cannot tell", f"No firm answer: {busy} of {name}, which was {fast}."
    is_short = m.prompts < MIN_PROMPTS or m.runs < MIN_RUNS
    if is_short or speedup.low is None or speedup.high is None:
        title = best.configuration.title
        few = f"{title} was {fast} on {_prompts(m.prompts)}, which is too few to tell"
        return "cannot tell", f"{few}: sweep at least three prompts, or longer."
    fast = f"{fast} ({speedup.low:.2f} to {speedup.high:.2f})"
    may_be_better = _rival_note(rival)
    rival_may_pay = rival is not None and _promise(rival) >= 1 + NEAR
    if speedup.high < 1 + NEAR and not rival_may_pay:
        headline = f"Do not speculate here: the best row, {name}, is {fast}.{may_be_better}"
        return "do not speculate", headline
    if _is_faster(speedup):
        return "speculate", f"Use {name}: {fast}.{may_be_better}"
    name = best.configuration.title
    headline = f"{name} is {fast}: measure more prompts before you decide.{may_be_better}"
    return "cannot tell", headline


def _rival_note(rival: Row | None) -> str:
    """The sentence that follows a headline; empty without a rival."""
    if rival is None:
        return ""
    if rival.measured:
        return f" {rival.configuration.title} may be better, but too few runs of it were measured."
    return f" {rival.configuration.title} may be better, but was not measured."


def _reasons(best: Row, m: Measured, rows: Sequence[Row], answer: Answer) -> Iterator[str]:
    times = _times(m.runs - m.doubts or m.runs)
    prompts = _prompts(m.prompts)
    yield f"It ran {times} on {prompts}, alternating with the target alone."
    if m.tau and m.speedup:
        price = m.tau / m.speedup.value
        if price >= 1:  # it has a whole target pass
            yield f"A round yields {m.tau:.2f} tokens for the price of {price:.2f} target passes."
    if m.c is not None and m.alpha is not None:
        yield f"A guess costs {m.c:.2f} of a pass, and {m.alpha:.0%} of those judged are accepted."
        if answer == "do not speculate" and m.c >= m.alpha:
            yield "A guess costs more than it saves: find a smaller or a better draft."
    yield from _kinds_reason(m)
    tied = [row for row in rows if row.mark == "tied"]
    if tied:
        names = "; ".join(row.configuration.label for row in tied)
        yield f"On the prompts that both ran, it cannot be distinguished from {names} within noise."
    memory = best.memory or 0  # bytes; 0 if unknown
    smaller = [row for row in tied if row.memory is not None and row.memory < memory]
    if smaller and answer == "speculate":
        name = max(smaller, key=_speed).configuration.label
        yield f"Of these, {name} needs no second model: prefer it if memory is short."


def _kinds_reason(m: Measured) -> Iterator[str]:
    """Yield on which kinds of prompt it is fastest and slowest, if these differ."""
    if not m.by_kind:
        return
    speeds = sorted((speedup.value, kind) for kind, speedup in m.by_kind.items())
    slowest, slowest_kind = speeds[0]
    fastest, fastest_kind = speeds[-1]
    if fastest >= (1 + NEAR) * slowest:
        yield (
            f"It depends on the text: {fastest:.2f} on {fastest_kind}, "
            f"{slowest:.2f} on {slowest_kind}."
        )


def _doubts(m: Measured, rows: Sequence[Row], rival: Row | None) -> Iterator[str]:
    if m.doubts >= BUSY_SHARE * m.runs:
        runs = f"{m.doubts} of {_runs(m.runs)}"
        yield f"The machine was busy in {runs}: sweep again when it is quiet."
    if rival is not None:
        yield _rival_doubt(rival)
    unmeasured = sum(row.status == "planned" for row in rows)
    if unmeasured == 1:
        yield "1 row was neither measured nor predicted: the sweep was too short."
    elif unmeasured:
        yield f"{unmeasured} rows were neither measured nor predicted: the sweep was too short."
    elif MIN_PROMPTS <= m.prompts < 2 * MIN_PROMPTS:
        yield f"It was measured on only {_prompts(m.prompts)}."


def _rival_doubt(rival: Row) -> str:
    """The sentence on a row that may be better than the best one."""
    promise = "ahead so far"
    if rival.promise:
        promise = f"predicted at {rival.promise:.2f}"
    if rival.measured is None:
        ran = "it was not measured"
    elif rival.measured.doubts == rival.measured.runs:
        ran = "the machine was busy whenever it ran"
    else:
        ran = f"it ran on only {_prompts(rival.measured.prompts)}"
    return f"{rival.configuration.title} is {promise}, and {ran}: sweep longer."


def _prompts(count: int) -> str:
    return "one prompt" if count == 1 else f"{count} prompts"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _times(count: int) -> str:
    if count == 1:
        return "once"
    if count == 2:
        return "twice"
    return f"{count} times"


def page_query(row: Configuration, request: SweepRequest, machine: Machine | None) -> str:
    """Make the query of the page's address with the settings of the row, such as
    "?drafter=ngram&gamma=5&temperature=0"; `assets/page/run/address.js` reads it."""
    values: dict[str, object] = {}
    if machine is not None and machine.pair not in (BUILTIN, "custom"):
        values["pair"] = machine.pair
    values["drafter"] = row.drafter
    values["gamma"] = row.gamma
    values["gamma_policy"] = row.policy
    values["temperature"] = f"{row.temperature:g}"
    if request.base.top_k:
        values["top_k"] = request.base.top_k
    if request.base.top_p < 1.0:
        values["top_p"] = f"{request.base.top_p:g}"
    return f"?{urlencode(values)}"


def engine_settings(rows: Sequence[Row], machine: Machine) -> tuple[EngineSettings, ...]:
    """The settings for transformers, vLLM, SGLang and llama.cpp, each of the first row that the
    engine can run. rows: at least one, the best one first."""
    settings = []
    for engine, source in SOURCES.items():
        text, note = _first_spelled(rows, machine, engine)
        settings.append(
            EngineSettings(
                engine=engine,
                version=source.version,
                source=source.address,
                text=text,
                note=note,
            )
        )
    return tuple(settings)


def _first_spelled(rows: Sequence[Row], machine: Machine, engine: str) -> tuple[str, str]:
    """The text to paste for the first row that an engine can run, and a note; if it can run none,
    no text and the best row's note."""
    best = rows[0]
    for row in rows:
        text, note = _spelled(row.configuration, machine, engine)
        if not text:
            continue
        if row is not best:
            note = f"{_instead(engine, best, row)} {note}"
        return text, note.strip()
    _, note = _spelled(best.configuration, machine, engine)
    return "", note.strip()


def _spelled(row: Configuration, machine: Machine, engine: str) -> tuple[str, str]:
    """The text to paste for a row, empty if the engine has no such drafter; and a note."""
    texts: Mapping[str, tuple[str, str]] = {}
    deployed = drafter_kind(row.drafter).deployed
    if deployed is not None:
        texts = deployed(row, machine)
    no_drafter = (
        f"{engine} has none of the drafters that pay here, so there are no settings for it."
    )
    text, note = texts.get(engine) or texts.get("") or ("", no_drafter)
    if text and row.policy != "fixed" and engine not in HAVE_POLICY[row.policy]:
        note = f"{engine} has no such policy and drafts {row.gamma} tokens in every round. {note}"
    return text, note


def _instead(engine: str, best: Row, row: Row) -> str:
    """The sentence on why an engine gets another row than the best one."""
    return (
        f"{engine} cannot run the best row ({best.configuration.label}): these settings are for "
        f"{row.configuration.label}, {_speed(row):.2f} times as fast as the target alone."
    )
