"""The decoding loop of one lane: prefill, then rounds of draft, verify, emit.

One round, with committed ids x_1 .. x_n and both caches holding x_1 .. x_{n-1}:

1. the drafter proposes d_1 .. d_g, each with the distribution q that it was drawn from; the policy
   has decided beforehand how many;
2. one target pass over x_n, d_1 .. d_g gives the target's distributions p at g + 1 places;
3. the rule of `verdict.verify`, or another of `verdicts`, keeps the first k drafts and draws one
   more token;
4. both caches are rolled back to the n + k tokens that are now committed and fed.

The baseline is this same loop with no drafts (gamma = 0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..errors import ModelError, SettingsError, shown
from ..kinds import drafter_kind
from ..lanes import BASELINE, NO_SETTINGS, SPECULATIVE, Lane
from ..pairs.pair import Pair, checked_pair, context_length
from ..settings import Settings
from .drafting import Drafter, EarlierTexts, Memory, make_drafter, memory_ids
from .engine import Engine, now, prefill
from .engines import fastest_threads, make_engine, make_state_engine
from .events import EndReason, Round, Token
from .paths import make_context, make_path
from .policy import Policy, make_policy
from .text import TextStream
from .threads import use_threads
from .tokens import Annotator, Texts, texts_of
from .types import Judged, LaneEvents, Prefilled, Prompt
from .verdict import Decide, decide, rule


def speculate(
    pair: Pair,
    prompt: Prompt,
    settings: Settings | None = None,
    *,
    memory: Memory = (),
    **changes: Any,
) -> Iterator[Round]:
    """Decode `prompt` (text or ids) with drafts; yields a `Round` per target pass.

    Without settings they are those of `Pair.settings`, which drafts with what the pair has.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from. changes: fields
    of `Settings`, such as gamma=5. Raises `SpecvizError` subclasses. The generator may be abandoned
    at any point.
    """
    pair = checked_pair(pair)
    return _rounds_only(pair, prompt, settings_for(pair, settings, changes), SPECULATIVE, memory)


def baseline(
    pair: Pair, prompt: Prompt, settings: Settings | None = None, **changes: Any
) -> Iterator[Round]:
    """The same loop without drafts; yields a `Round` of one token per target pass."""
    pair = checked_pair(pair)
    own = Settings() if settings is None else settings
    return _rounds_only(pair, prompt, settings_for(pair, own, changes), BASELINE)


def settings_for(pair: Pair, settings: Settings | None, changes: Mapping[str, Any]) -> Settings:
    """`settings`, or those of the pair, with the `changes` of some fields. Raises
    `SettingsError`."""
    if settings is None:
        return pair.settings(**Settings.known(changes))
    if not isinstance(settings, Settings):
        raise SettingsError(NO_SETTINGS.format(shown(settings)))
    return replace(settings, **Settings.known(changes)) if changes else settings


def _rounds_only(
    pair: Pair, prompt: Prompt, settings: Settings, lane: Lane, memory: Memory = ()
) -> Iterator[Round]:
    texts = memory_ids(pair, memory, [settings])
    events = decode(pair, pair.encode(prompt, chat=settings.chat), settings, lane, memory=texts)
    return (event for event in events if isinstance(event, Round))


def lane_threads(pair: Pair, lane: Lane) -> int:
    """How many threads share the passes of a lane: as many as make its rounds fastest here, with a
    draft model and gamma as `Settings` has them by default.

    Measured once per process and pair, in less than two seconds.
    """
    if lane == BASELINE:
        return fastest_threads(pair.target, None, pair.vocab, 1)
    draft = pair.draft if pair.shared is None else None  # it has a vocabulary of its own
    return fastest_threads(pair.target, draft, pair.vocab, Settings().gamma + 1)


def decode(
    pair: Pair,
    prompt_ids: Sequence[int],
    settings: Settings,
    lane: Lane,
    decider: Decide | None = None,
    memory: EarlierTexts = (),
    *,
    states: bool = False,
) -> LaneEvents:
    """All of one lane: yields `Prefilled`, then rounds; returns why it ended. Sent True after a
    round, it ends there.

    `decider` replaces the verdict of the settings in benchmarks of speed, where the text does not
    matter. memory: earlier texts as `memory_ids` gives them. states: run the target in a form that
    can hand out its hidden states, as a lane beside this one must.
    """
    if lane == BASELINE:
        settings = replace(settings, gamma=0)
    run = _Run(pair, prompt_ids, settings, lane, decider, memory, states)
    yield run.prefill()
    while (reason := run.end_reason()) is None:
        if (yield run.round()):
            return run.end_reason() or "stopped"
    return reason


class _Run:
    """The state of one lane between rounds."""

    def __init__(
        self,
        pair: Pair,
        prompt_ids: Sequence[int],
        settings: Settings,
        lane: Lane,
        decider: Decide | None = None,
        memory: EarlierTexts = (),
        states: bool = False,
    ) -> None:
        self.pair, self.settings, self.lane = pair, settings, lane
        self.device = pair.device
        self.wall, self.resumed = 0.0, now(self.device)
        judge = decider or rule(settings, decide)
        context = make_context(settings, pair.vocab, self.device, judge, lane, memory)
        self.threads = lane_threads(pair, lane)
        with use_threads(self.threads):
            states = states or drafter_kind(settings.drafter).reads_states
            make = make_state_engine if states else make_engine
            self.target: Engine = make(pair.target, pair.vocab)
            self.path = make_path(self.target, context)
            self.drafter: Drafter = make_drafter(pair, context, self.path)
        self.policy: Policy = make_policy(settings, self.costs)
        self.ids = list(prompt_ids)
        self.budget = len(self.ids) + settings.max_new_tokens  # most ids that may be committed
        self.limit = context_length(pair.target)
        self.text = TextStream(pair.tokenizer, self.ids)
        self.annotator = Annotator(pair.tokenizer, settings, self.target.partial)
        self.tail = ""  # the end of what was emitted, where a stop string may have begun
        self.index = 0
        self.clock = 0.0
        self.ended: EndReason | None = None

    def prefill(self) -> Prefilled:
        """Read all but the last prompt token, which the first round feeds."""
        read = self.ids[:-1]
        self.path.prepare("judge", len(self.ids), min(self.budget, self.limit or self.budget))
        seconds, forms = {"target": prefill(self.target, read)}, {"target": self.target.form}
        if self.drafter.form is not None:
            seconds["draft"], forms["draft"] = self.drafter.prefill(read), self.drafter.form
        self.target.told()  # what reading the prompt has cost belongs to no round
        self.pause()
        return Prefilled(seconds, forms, self.threads, self.drafter.layers)

    def end_reason(self) -> EndReason | None:
        """Why no further round is due, or None."""
        if self.ended:
            return self.ended
        if len(self.ids) >= self.budget:
            return "length"
        # The last committed token is fed at place len - 1, so a full context allows one more.
        if self.limit is not None and len(self.ids) > self.limit:
            return "context"
        return None

    def gamma(self) -> int:
        """The most tokens to draft now: none that could not be kept."""
        length = len(self.ids)
        room = min(self.budget - length - 1, self.drafter.room(length))
        if self.limit is not None:
            room = min(room, self.limit - length)
        return min(self.policy.gamma, room)

    def costs(self) -> tuple[float, float]:
        """c and the cost of a further token in a target pass, from sizes alone."""
        from .cost import extra_token_cost, pass_cost  # which few policies ask for

        step, alone = self.drafter.step_cost(), pass_cost(self.pair.target, self.target.form)
        return step / alone, extra_token_cost(self.device, self.target.form)

    def round(self) -> Round:
        """One draft run, one target pass, one verdict."""
        with self.target.around(), torch.inference_mode():
            return self._round()

    def _round(self) -> Round:
        gamma = self.gamma()
        self.resumed = began = now(self.device)
        draft = self.drafter.draft(self.ids, gamma) if gamma else None
        drafted = now(self.device)
        judged = self.path.judge(self.ids, draft)
        verified = now(self.device)
        emitted = self.commit(judged)
        done = now(self.device)

        # Text and top fives are for the reader: no engine needs them, so only `wall` counts them.
        self.clock += done - began
        self.index += 1
        tokens = self.tokens(judged, emitted)
        self.pause()
        return Round(
            self.lane,
            self.index - 1,
            *tokens,
            draft_seconds=drafted - began,
            verify_seconds=verified - drafted,
            overhead_seconds=done - verified,
            clock=self.clock,
            wall=self.wall,
            **self.target.told(),
        )

    def pause(self) -> None:
        """Count the time since the lane began or went on; what follows is the caller's."""
        self.wall += now(self.device) - self.resumed

    def commit(self, judged: Judged) -> list[int]:
        """The ids that this round emits; both caches rolled back to what is committed."""
        self.policy.observe(len(judged.ids), judged.verdict.accepted)
        kept = judged.ids[: judged.verdict.accepted]
        emitted = [*kept, judged.verdict.next_id]
        if not self.settings.ignore_eos:
            ends = [i for i, token_id in enumerate(emitted) if token_id in self.pair.eos_ids]
            if ends:
                emitted = emitted[: ends[0] + 1]
                self.ended = "eos"
        self.ids += emitted
        self.target.rollback(len(self.ids) - 1)
        self.drafter.rollback(len(self.ids) - 1)
        return emitted

    def tokens(self, judged: Judged, emitted: list[int]) -> tuple[list[Token], list[Token]]:
        """The round's drafted and emitted tokens; ends the lane where a stop string does."""
        views = self.annotator.views(judged)
        if views.not_finite:
            raise ModelError(
                f"the {views.not_finite} gave logits that are not finite in round {self.index}: "
                "load it in fp32 or bf16, or check its weights."
            )
        texts = texts_of(self.text, judged, emitted)
        stop = self.stop_place(texts.emitted)
        if stop is not None:
            self.ended = "stop"
            kept = min(judged.verdict.accepted, len(emitted))
            dropped = texts.emitted[stop + 1 : kept]
            texts = Texts(texts.emitted[: stop + 1], dropped + texts.not_emitted)
            emitted = emitted[: stop + 1]
        elif self.end_reason() is not None:
            texts.emitted[-1] += self.text.flush()
        return self.annotator.tokens(judged, emitted, texts, views)

    def stop_place(self, added: list[str]) -> int | None:
        """The index of the text that completes a stop string, or None."""
        stops = self.settings.stop
        if not stops:
            return None
        reach = max(map(len, stops)) - 1
        for place, text in enumerate(added):
            window = self.tail + text
            if any(stop in window for stop in stops):
                return place
            self.tail = window[len(window) - reach :] if len(window) > reach else window
        return None
