"""Run one lane without a race: yield its rounds, or return its whole text in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..core.drafter_choice import Memory, memory_ids
from ..core.events import End, EndReason, Round
from ..core.header import header_of
from ..core.lanes import BASELINE, SPECULATIVE, Lane
from ..core.loop import LaneOptions, decode
from ..core.pair import Pair, checked_pair, settings_for
from ..core.settings import Settings
from ..core.types import LaneEvents, Prefilled, Prompt
from .metrics import Metrics, compute_metrics
from .trace import Trace

if TYPE_CHECKING:
    from ..core.protocols import WatchedPair


SHOWN = 200  # characters of a text in the line that a `Result` is printed as


@dataclass(frozen=True, repr=False)
class Result:
    """The result of `generate`. trace: the header and the rounds of one lane, with drafts. end_ids:
    tokens that end a text of this pair and are not part of it."""

    trace: Trace
    end_ids: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        """The beginning of the text, with numbers of tokens and rounds."""
        shown = self.text
        if len(shown) > SHOWN:
            shown = f"{shown[:SHOWN]}…"
        drafted = sum(len(r.drafted) for r in self.rounds)
        tokens = sum(len(r.emitted) for r in self.rounds)
        return (
            f"<Result {shown!r}: {tokens} tokens in {len(self.rounds)} rounds, {drafted} drafted>"
        )

    def _repr_html_(self) -> str | None:
        """As `Trace._repr_html_`."""
        return self.trace._repr_html_()

    @property
    def rounds(self) -> list[Round]:
        """The rounds, each with the tokens that it drafted and emitted."""
        return self.trace.rounds

    @property
    def text(self) -> str:
        """The text after the prompt, without the token that ended it."""
        tokens = [token for r in self.rounds for token in r.emitted]
        if tokens and tokens[-1].id in self.end_ids:
            tokens.pop()
        return "".join(token.text for token in tokens)

    @cached_property
    def metrics(self) -> Metrics:
        """alpha, tau and all other metrics of one lane. Comparisons with the target alone
        (speed-up, c) are None: `race` measures them."""
        return compute_metrics(self.trace)


def generate(
    pair: Pair | WatchedPair,
    prompt: Prompt,
    settings: Settings | None = None,
    *,
    memory: Memory = (),
    **changes: Any,
) -> Result:
    """Decode `prompt` (text, ids or turns) with drafts, to the end.

    The settings are those of `Pair.settings`, or `settings`, with the `changes`: fields of
    `Settings` such as gamma=5. memory: earlier texts for drafters that read them. Raises
    `SpecvizError` subclasses.
    """
    pair = checked_pair(pair)
    settings = settings_for(pair, settings, changes)
    texts = memory_ids(pair, memory, [settings])
    options = LaneOptions(memory=texts)
    ids = pair.encode(prompt, chat=settings.chat)
    events = decode(pair, ids, settings, SPECULATIVE, options)
    prefilled = next(events)
    assert isinstance(prefilled, Prefilled)
    rounds, reason = _written(events)
    lanes = {SPECULATIVE: settings}
    prefills = {SPECULATIVE: prefilled}
    messages = pair.messages_of(prompt, settings.chat)
    header = header_of(pair, ids, lanes, "sequential", prefills, texts, messages)
    trace = Trace(header, rounds, End({SPECULATIVE: reason}))
    if settings.ignore_eos:
        return Result(trace)
    return Result(trace, pair.eos_ids)


def _written(events: LaneEvents) -> tuple[list[Round], EndReason]:
    """Run the rest of a lane; returns its rounds, and the reason of its end."""
    rounds: list[Round] = []
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            return rounds, end.value
        assert isinstance(event, Round)
        rounds.append(event)


def speculate(
    pair: Pair | WatchedPair,
    prompt: Prompt,
    settings: Settings | None = None,
    *,
    memory: Memory = (),
    **changes: Any,
) -> Iterator[Round]:
    """Decode `prompt` (text, ids or turns) with drafts; yields a `Round` per target pass.

    Without settings they are those of `Pair.settings`, which drafts with what the pair has.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from. changes: fields
    of `Settings`, such as gamma=5. Raises `SpecvizError` subclasses. The generator may be abandoned
    at any point.
    """
    pair = checked_pair(pair)
    settings = settings_for(pair, settings, changes)
    return _rounds_only(pair, prompt, settings, SPECULATIVE, memory)


def baseline(
    pair: Pair | WatchedPair, prompt: Prompt, settings: Settings | None = None, **changes: Any
) -> Iterator[Round]:
    """The same loop without drafts; yields a `Round` of one token per target pass."""
    pair = checked_pair(pair)
    if settings is None:
        settings = Settings()
    settings = settings_for(pair, settings, changes)
    return _rounds_only(pair, prompt, settings, BASELINE)


def _rounds_only(
    pair: Pair, prompt: Prompt, settings: Settings, lane: Lane, memory: Memory = ()
) -> Iterator[Round]:
    texts = memory_ids(pair, memory, [settings])
    options = LaneOptions(memory=texts)
    ids = pair.encode(prompt, chat=settings.chat)
    events = decode(pair, ids, settings, lane, options)
    return (event for event in events if isinstance(event, Round))
