"""Is it paying? Measure both servers' streams in turns, many requests at once, and long prompts."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from ..pairs.prompts import PromptOfKind
from ..runs.uncertainty import NEAR, geometric_mean, spread
from ..sides.watched.engines import Prompt
from .asking import AuditedModel, Streamed
from .report import Evidence, Length, Load, Speed, Verdict

ALL = "all"
MIN_TURNS = 3  # fewer give no verdict
TURNS_AT_ONCE = 2  # of both servers at each number of requests at once
SAME_PROMPTS = 4  # for every number of requests at once, so that they compare


@dataclass(frozen=True, slots=True)
class Turn:
    """One text from each server after the same prompt. baseline_text: None without a baseline."""

    kind: str
    prompt: Prompt
    text: Streamed
    baseline_text: Streamed | None


def take_turns(
    server: AuditedModel,
    baseline: AuditedModel | None,
    prompts: Sequence[tuple[PromptOfKind, Prompt]],
    turns: int,
    tokens: int,
) -> Iterator[Turn]:
    """Stream from both servers after the same prompts, one after the other; who begins changes
    with each turn, so that a machine that warms up or slows down affects both equally. Raises
    `ServerError`."""
    for index in range(turns):
        prompt_of_kind, prompt = prompts[index % len(prompts)]
        baseline_text: Streamed | None = None
        if baseline is not None and index % 2:
            baseline_text = baseline.stream(prompt, tokens)
        text = server.stream(prompt, tokens)
        if baseline is not None and not index % 2:
            baseline_text = baseline.stream(prompt, tokens)
        yield Turn(prompt_of_kind.kind, prompt, text, baseline_text)


def speeds_of(turns: Sequence[Turn]) -> tuple[Speed, ...]:
    """The speeds over all turns, then by kind of prompt. Turns whose text came at once are left
    out."""
    timed = [turn for turn in turns if _is_timed(turn)]
    if not timed:
        return ()
    by_kind: dict[str, list[Turn]] = defaultdict(list)
    for turn in timed:
        by_kind[turn.kind].append(turn)
    rows = [_speed(ALL, timed)]
    if len(by_kind) > 1:
        rows += [_speed(kind, turns_of_kind) for kind, turns_of_kind in by_kind.items()]
    return tuple(rows)


def _is_timed(turn: Turn) -> bool:
    if turn.text.rate is None:
        return False
    return turn.baseline_text is None or turn.baseline_text.rate is not None


def _speed(kind: str, turns: Sequence[Turn]) -> Speed:
    rates = [turn.text.rate or 0.0 for turn in turns]
    speed = Speed(
        kind=kind,
        turns=len(turns),
        ours=spread(rates),
        ours_first=spread(turn.text.first for turn in turns),
    )
    baseline_texts = [turn.baseline_text for turn in turns if turn.baseline_text is not None]
    if len(baseline_texts) < len(turns):
        return speed
    baseline_rates = [text.rate or 0.0 for text in baseline_texts]
    ratios = _ratios(rates, baseline_rates)
    return replace(
        speed,
        theirs=spread(baseline_rates),
        theirs_first=spread(text.first for text in baseline_texts),
        ratio=spread(ratios),
        gain=geometric_mean([math.log(ratio) for ratio in ratios]),
    )


def _ratios(rates: Sequence[float], baseline_rates: Sequence[float]) -> list[float]:
    return [rate / baseline for rate, baseline in zip(rates, baseline_rates, strict=True)]


def loads(
    server: AuditedModel,
    baseline: AuditedModel | None,
    prompts: Sequence[Prompt],
    levels: Sequence[int],
    tokens: int,
) -> Iterator[Load]:
    """The speed of many requests at once, level by level. Raises `ServerError`."""
    for at_once in levels:
        rates: list[float] = []
        baseline_rates: list[float] = []
        for turn in range(TURNS_AT_ONCE):
            if baseline is not None and turn % 2:
                baseline_rates.append(_rate_at_once(baseline, prompts, at_once, tokens))
            rates.append(_rate_at_once(server, prompts, at_once, tokens))
            if baseline is not None and not turn % 2:
                baseline_rates.append(_rate_at_once(baseline, prompts, at_once, tokens))
        load = Load(at_once, ours=spread(rates))
        if baseline is not None:
            ratios = _ratios(rates, baseline_rates)
            load = replace(load, theirs=spread(baseline_rates), ratio=spread(ratios))
        yield load


def texts_at_once(at_once: int) -> int:
    """The number of texts that a server writes in a turn with `at_once` at a time: at least
    `SAME_PROMPTS`."""
    return at_once * -(-SAME_PROMPTS // at_once)


def _rate_at_once(
    model: AuditedModel, prompts: Sequence[Prompt], at_once: int, tokens: int
) -> float:
    """Tokens per second of all requests together, from the first request to the last token."""
    count = 0
    begin = time.perf_counter()
    for first in range(0, texts_at_once(at_once), at_once):
        indices = range(first, first + at_once)
        prompts_at_once = [prompts[index % len(prompts)] for index in indices]
        count += _tokens_of(prompts_at_once, model, tokens)
    seconds = time.perf_counter() - begin
    return count / seconds


def _tokens_of(prompts: Sequence[Prompt], model: AuditedModel, tokens: int) -> int:
    """Stream a text after each of these prompts, all at once; returns their tokens."""
    results: SimpleQueue[Streamed | BaseException] = SimpleQueue()

    def ask(prompt: Prompt) -> None:
        try:
            results.put(model.stream(prompt, tokens))
        except BaseException as error:
            results.put(error)

    for prompt in prompts:
        # Threads of a pool would delay the exit of the program after Ctrl-C.
        threading.Thread(target=ask, args=(prompt,), daemon=True).start()
    count = 0
    for _ in prompts:
        result = results.get()
        if isinstance(result, BaseException):
            raise result
        count += result.tokens
    return count


def lengths(
    server: AuditedModel,
    baseline: AuditedModel | None,
    prompts: Sequence[tuple[int, Prompt]],
    tokens: int,
) -> Iterator[Length]:
    """Measure the speed after longer and longer prompts, each with its number of tokens. Raises
    `ServerError`."""
    for count, prompt in prompts:
        text = server.stream(prompt, tokens)
        baseline_text: Streamed | None = None
        if baseline is not None:
            baseline_text = baseline.stream(prompt, tokens)
        if text.rate is None:
            continue
        length = Length(tokens=count, ours=text.rate, ours_first=text.first)
        if baseline_text is None:
            yield length
        elif baseline_text.rate is not None:
            yield replace(length, theirs=baseline_text.rate, theirs_first=baseline_text.first)


def crossover(rows: Sequence[Load]) -> int | None:
    """The lowest number of several requests at once at and above which drafts lose in nearly every
    turn; None if there is none. Single requests are judged by the turns, which are many."""
    losing: int | None = None
    for row in reversed(rows):
        if row.at_once == 1 or row.ratio is None:
            break
        if row.ratio.high >= 1.0:
            break
        losing = row.at_once
    return losing


def paying_verdict(
    speeds: Sequence[Speed], rows: Sequence[Load], by_length: Sequence[Length], note: str
) -> Verdict:
    """The answer to the second question. note: why something was not measured; may be empty."""
    if not speeds:
        return _untold(note or "no text was streamed long enough to be timed")
    whole = speeds[0]
    gain = whole.gain
    turns = _in_words(whole.turns)
    evidence = (*_of_the_turns(speeds), *_of_the_loads(rows), *_of_the_lengths(by_length))
    doubt = _doubt(speeds, by_length, note)
    if gain is None or whole.ratio is None:
        because = (
            "no baseline was named: serve the same target without speculation and name it with "
            "--baseline"
        )
        return _untold(because, evidence, doubt)
    if whole.turns < MIN_TURNS or gain.low is None or gain.high is None:
        return _untold(note or f"{turns} are too few to tell: allow more --minutes", evidence)
    measured = f"{gain.shown()} times the baseline's tokens per second in {turns}"
    if gain.low > 1.0:
        until = crossover(rows)
        if until is not None:
            measured += f", but not with {until} requests at once"
        return Verdict("paying", "yes", f"Yes: {measured}.", evidence, doubt)
    if gain.high < 1.0 + NEAR:
        return Verdict("paying", "no", f"No: {measured}.", evidence, doubt)
    return _untold(f"the interval contains both a gain and a loss: {measured}", evidence, doubt)


def _in_words(turns: int) -> str:
    if turns == 1:
        return "1 turn"
    return f"{turns} turns"


def _untold(because: str, evidence: tuple[Evidence, ...] = (), doubt: str = "") -> Verdict:
    sentence = f"Unknown, because {because}."
    return Verdict("paying", "cannot be told", sentence, evidence, doubt)


def _doubt(speeds: Sequence[Speed], by_length: Sequence[Length], note: str) -> str:
    """A reason why the answer could be another."""
    doubts: list[str] = []
    if note:
        doubts.append(f"Not everything was measured: {note}.")
    whole, *of_kinds = speeds
    losing = [speed.kind for speed in of_kinds if speed.gain is not None and speed.gain.value < 1.0]
    measured = [speed for speed in of_kinds if speed.gain is not None]
    if 0 < len(losing) < len(measured):
        doubts.append(f"It depends on the prompt: it loses on {', '.join(losing)}.")
    ratio = whole.ratio
    if ratio is None:
        return " ".join(doubts)
    slower = [str(row.tokens) for row in by_length if row.ratio is not None and row.ratio < 1.0]
    if slower and ratio.median > 1.0:
        tokens = ", ".join(slower)
        doubts.append(f"After prompts of {tokens} tokens it was slower, measured in one turn each.")
    quartile_range = ratio.high - ratio.low
    if quartile_range > 0.5 * ratio.median:
        doubts.append("The turns differ a lot: others may be using the servers or their machine.")
    return " ".join(doubts)


def _of_the_turns(speeds: Sequence[Speed]) -> list[Evidence]:
    facts: list[Evidence] = []
    for row in speeds:
        sentence = f"{row.ours.shown(1)} tokens/s"
        if row.theirs is not None and row.ratio is not None:
            sentence += f", the baseline {row.theirs.shown(1)}: {row.ratio.shown()} times"
        facts.append(Evidence(f"prompts: {row.kind}", f"{sentence}, in {_in_words(row.turns)}."))
    whole = speeds[0]
    first = f"{1000 * whole.ours_first.median:.0f} ms to the first token"
    if whole.theirs_first is not None:
        first += f", the baseline {1000 * whole.theirs_first.median:.0f} ms"
    facts.append(Evidence("first token", f"{first}."))
    return facts


def _of_the_loads(rows: Sequence[Load]) -> list[Evidence]:
    facts: list[Evidence] = []
    for row in rows:
        sentence = f"{row.ours.median:.1f} tokens/s together"
        if row.theirs is not None and row.ratio is not None:
            sentence += f", the baseline {row.theirs.median:.1f}: {row.ratio.shown()} times"
        facts.append(Evidence(f"{row.at_once} at once", f"{sentence}."))
    return facts


def _of_the_lengths(rows: Sequence[Length]) -> list[Evidence]:
    facts: list[Evidence] = []
    for row in rows:
        sentence = f"{row.ours:.1f} tokens/s"
        if row.ratio is not None:
            sentence += f", the baseline {row.theirs:.1f}: {row.ratio:.2f} times"
        facts.append(Evidence(f"after {row.tokens} tokens", f"{sentence}."))
    return facts
