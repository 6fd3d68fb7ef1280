"""The decoding loop of one lane: prefill, then rounds of draft, verify, emit.

One round, with committed ids x_1 .. x_n. The target's cache holds x_1 .. x_{n-1}. The draft model's
cache may lack one more: the model never reads the last token that it drafted. The baseline is the
same with gamma = 0, so that nothing is drafted:

1. the drafter proposes d_1 .. d_g, each with the q that it was drawn from; whether one is proposed
   is settled before it is drawn;
2. one target pass over x_n, d_1 .. d_g gives the target's distributions p at g + 1 positions;
3. the verdict (`verdict.decide_in_numpy`) keeps the first k drafts and draws one more token;
4. both caches are rolled back to committed tokens; the target's holds n + k of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from .clock import now
from .drafter import Drafter
from .drafter_choice import EarlierTexts, make_drafter, policy_for
from .engine_choice import lane_threads, make_engine
from .events import EndReason, Round
from .lanes import BASELINE, Lane
from .model_facts import before_border, context_length, rotation_borders
from .pair import Pair
from .paths import make_context, other_rule_of, verdict_check_of
from .registry import drafter_kind
from .settings import Settings
from .shared_prompt import SharedPrompt
from .threads import use_threads
from .tokens import AnnotatedTokens, Annotator
from .types import JudgedRound, LaneEvents, Prefilled

if TYPE_CHECKING:
    from .policy import Policy
    from .protocols import DecodingPath, Engine, Rule, WholeRounds


@dataclass(frozen=True, kw_only=True)
class LaneOptions:
    """Options of a lane besides its settings.

    scripted_rule: a rule that judges instead of the settings' rule, for benchmarks of speed.
    memory: as `memory_ids` gives it.
    hidden_states: run the target in a form that has them, for another lane of the race.
    prompt: the prompt that this lane shares with the others; None if there are none.
    """

    scripted_rule: Rule | None = None
    memory: EarlierTexts = ()
    hidden_states: bool = False
    prompt: SharedPrompt | None = None


def decode(
    pair: Pair,
    prompt_ids: Sequence[int],
    settings: Settings,
    lane: Lane,
    options: LaneOptions | None = None,
) -> LaneEvents:
    """Run a whole lane: yield `Prefilled`, then rounds; return why it ended. Send True after a
    round to end it there."""
    if lane == BASELINE:
        settings = replace(settings, gamma=0)
    lane_run = start_lane(pair, prompt_ids, settings, lane, options)
    yield lane_run.prefill()
    while lane_run.ended is None:
        if (yield lane_run.round()):
            return lane_run.ended or "stopped"
    return lane_run.ended


def start_lane(
    pair: Pair,
    prompt_ids: Sequence[int],
    settings: Settings,
    lane: Lane,
    options: LaneOptions | None = None,
) -> LaneRun:
    """Prepare a lane for its prefill: make its engines, drafter and path."""
    options = options or LaneOptions()
    device = pair.device
    started = now(device)
    other_rule = check = None
    if settings.gamma > 0:  # else nothing is judged, and the token rule is fastest
        other_rule = options.scripted_rule or other_rule_of(settings)
        check = None if options.scripted_rule else verdict_check_of(settings)
    run_context = make_context(settings, pair.vocab, device, other_rule, lane, options.memory)
    needs_states = options.hidden_states or drafter_kind(settings.drafter).reads_states
    target_engine = make_engine(pair.target, pair.vocab, hidden_states=needs_states)
    threads = lane_threads(pair, lane, target_engine)
    target_engine.limit_threads(threads)
    with use_threads(threads):  # a drafter makes its engines itself
        path = target_engine.path(run_context)
        drafter = make_drafter(pair, run_context, path)
    ids = list(prompt_ids)
    budget = len(ids) + settings.max_new_tokens
    return LaneRun(
        pair=pair,
        settings=settings,
        lane=lane,
        ids=ids,
        prompt=options.prompt or SharedPrompt(),
        threads=threads,
        target_engine=target_engine,
        path=path,
        drafter=drafter,
        policy=policy_for(settings, pair, target_engine, drafter),
        check=check,
        annotator=Annotator(pair.tokenizer, settings, ids, target_engine.top_logprobs_only),
        budget=budget,
        context=context_length(pair.target) or budget,
        borders=rotation_borders(pair.target),
        started=started,
    )


@dataclass(eq=False, kw_only=True)
class LaneRun:
    """The state of one lane between rounds.

    ids: of the prompt and of all that was committed since.
    policy: None if every round may draft up to `settings.gamma` tokens.
    check: of each verdict, before anything reads it; None if the rule is one of ours.
    budget: the most tokens of prompt and text.
    context: the most tokens that the target can see.
    borders: of the target's rotations, see `rotation_borders`.
    started: when the lane began, before its engines were made.
    index: of the next round, from 0.
    clock, wall: seconds, as in `Round`.
    whole_rounds: runs a round on the device alone; None if nothing can.
    ended: why no further round is due, or None.
    """

    pair: Pair
    settings: Settings
    lane: Lane
    ids: list[int]
    prompt: SharedPrompt
    threads: int
    target_engine: Engine
    path: DecodingPath
    drafter: Drafter
    policy: Policy | None
    check: Callable[[JudgedRound], None] | None
    annotator: Annotator
    budget: int
    context: int
    borders: Sequence[int]
    started: float
    index: int = 0
    clock: float = 0.0
    wall: float = 0.0
    whole_rounds: WholeRounds | None = None
    ended: EndReason | None = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.pair.device
        # The last committed token is fed at position len - 1, so a full context allows one more.
        self.max_length = min(self.budget, self.context + 1)
        self.ended = self._reached_limit()

    def prefill(self) -> Prefilled:
        """Read all but the last prompt token, which the first round feeds."""
        prefix = self.ids[:-1]
        self.path.prepare("judge", len(self.ids), min(self.budget, self.context))
        began = now(self.device)
        seconds = {"target": self.prompt.read(self.target_engine, prefix)}
        # A lane that takes over another's cache is charged the time of the pass that filled it.
        shared_seconds = seconds["target"] - (now(self.device) - began)
        engines = {"target": self.target_engine.name}
        if self.drafter.engine_name is not None:
            seconds["draft"] = self.drafter.prefill(prefix)
            engines["draft"] = self.drafter.engine_name
        # The device may begin the next round before the host has read the last verdict. A policy
        # must read it to choose the next number of drafts, and a foreign rule's must be checked.
        if self.policy is None and self.check is None:
            self.whole_rounds = self.target_engine.whole_rounds(self.path, self.drafter, self.ids)
        self.target_engine.take_round_fields()  # the cost of the prefill belongs to no round
        self.wall = now(self.device) - self.started + shared_seconds
        return Prefilled(seconds, engines, self.threads, self.drafter.layers)

    def gamma(self) -> int:
        """The most tokens to draft now: no more than could be kept."""
        if self.target_engine.catch_up_due:
            return 0
        return self.gamma_after(len(self.ids))

    def gamma_after(self, length: int) -> int:
        """The most tokens to draft after `length` committed ones."""
        gamma = self.policy.gamma if self.policy else self.settings.gamma
        room = min(gamma, self.max_length - length - 1, self.drafter.room(length))
        # Crossing a border takes two passes, and a rejection would move the text back before it.
        return before_border(self.borders, length, room)

    def round(self) -> Round:
        """Run one round: one draft run, one target pass, one verdict."""
        with self.target_engine.round_context(), torch.inference_mode():
            gamma = self.gamma()
            if self.whole_rounds is not None and self.whole_rounds.fits(self.ids, gamma):
                return self._whole_round(self.whole_rounds, gamma)
            return self._round(gamma)

    def _round(self, gamma: int) -> Round:
        if self.policy:
            self.drafter.min_confidence = self.policy.min_confidence
        began = now(self.device)
        draft = None
        if gamma:
            draft = self.drafter.draft(self.ids, gamma)
        drafted_at = now(self.device)
        judged = self.path.judge(self.ids, draft)
        if self.check is not None:
            self.check(judged)
        verified_at = now(self.device)
        emitted = self.commit(judged)
        done = now(self.device)

        self.clock += done - began
        # Text and top fives are for the reader: no engine needs them, so only `wall` counts them.
        tokens = self._annotated(judged, emitted)
        self.wall += now(self.device) - began
        return self._finish_round(
            tokens,
            draft_seconds=drafted_at - began,
            verify_seconds=verified_at - drafted_at,
            overhead_seconds=done - verified_at,
        )

    def _whole_round(self, whole_rounds: WholeRounds, gamma: int) -> Round:
        """Run one round entirely on the device, and measure it with the device's own clock."""
        timed = whole_rounds.round(self.ids, self._is_followed(gamma))
        verified_at = time.perf_counter()
        emitted = self.commit(timed.judged)
        done = time.perf_counter()
        with whole_rounds.reading():
            tokens = self._annotated(timed.judged, emitted)
        annotated_at = time.perf_counter()

        # The device waits for the commit only if the next round has not been enqueued yet.
        overhead = 0.0 if timed.is_followed else done - verified_at
        seconds = timed.draft_seconds + timed.verify_seconds + overhead
        self.clock += seconds
        self.wall += seconds + annotated_at - done
        return self._finish_round(
            tokens,
            draft_seconds=timed.draft_seconds,
            verify_seconds=timed.verify_seconds,
            overhead_seconds=overhead,
        )

    def _is_followed(self, gamma: int) -> bool:
        """Whether the next round drafts `gamma` tokens too, however many drafts are kept now."""
        shortest = len(self.ids) + 1
        return all(
            self.gamma_after(length) == gamma for length in range(shortest, shortest + gamma + 1)
        )

    def _annotated(self, judged: JudgedRound, emitted: list[int]) -> AnnotatedTokens:
        """The reader's tokens of the round that has just been committed."""
        return self.annotator.tokens(judged, emitted, self.index, self.ended is not None)

    def _finish_round(
        self,
        tokens: AnnotatedTokens,
        *,
        draft_seconds: float,
        verify_seconds: float,
        overhead_seconds: float,
    ) -> Round:
        """Count the round that ends now, and make its `Round`. A stop text ends the lane."""
        if tokens.has_stop_text:
            self.ended = "stop"
        finished = Round(
            lane=self.lane,
            index=self.index,
            drafted=tokens.drafted,
            last=tokens.last,
            draft_seconds=draft_seconds,
            verify_seconds=verify_seconds,
            overhead_seconds=overhead_seconds,
            clock=self.clock,
            wall=self.wall,
            **self.target_engine.take_round_fields(),
        )
        self.index += 1
        return finished

    def commit(self, judged: JudgedRound) -> list[int]:
        """Commit a round's ids and return them: the policy learns from its verdict, both caches are
        rolled back to the committed tokens, and the lane ends if the text does."""
        accepted, next_id, _ = judged.verdict
        if self.policy:
            confidences = judged.draft.confidences if judged.draft else ()
            self.policy.observe(len(judged.ids), accepted, confidences)
        emitted = self._up_to_end([*judged.ids[:accepted], next_id])
        self.ids += emitted
        self.ended = "eos" if self._is_end(emitted[-1]) else self._reached_limit()
        self.target_engine.rollback(len(self.ids) - 1)
        self.drafter.rollback(len(self.ids) - 1)
        return emitted

    def _up_to_end(self, ids: list[int]) -> list[int]:
        """Cut ids after the first one that ends the text."""
        for count, token_id in enumerate(ids, 1):
            if self._is_end(token_id):
                return ids[:count]
        return ids

    def _is_end(self, token_id: int) -> bool:
        return not self.settings.ignore_eos and token_id in self.pair.eos_ids

    def _reached_limit(self) -> EndReason | None:
        """The limit that the text has reached, budget or context; None if there is room."""
        if len(self.ids) < self.max_length:
            return None
        if len(self.ids) >= self.budget:
            return "length"
        return "context"
