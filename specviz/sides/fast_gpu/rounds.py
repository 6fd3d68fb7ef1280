"""A round as one program: draft steps with their draws, target pass, verdict and the new length.

Between its rounds a lane needs three numbers: the count of committed tokens, and the last two of
them. They stay on the device, where each round leaves them for the next. So the host can enqueue
the next round before it has read a verdict, and the device does not wait for the host. Two programs
take turns: the outputs of one are read while the other runs.

Times are the device's own, between marks in its order of work. The first mark of a round is set
before the host prepares it: a device that waits for the host counts that time too.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.tensor_draws import PremadeDraws, probabilities, sample, uniforms
from ...core.tensor_verdict import decide_on_tensors
from ...core.types import Draft, JudgedRound, RunContext, TimedRound, Verdict
from .cache import InPlaceCache, Program
from .path import GraphPath

if TYPE_CHECKING:
    from ...core.drafter import Drafter
    from ...core.protocols import DecodingPath

TURNS = 2  # programs that take turns
FED = 2  # committed tokens that a draft model reads again: after a round its cache may lack one
_step_by_step: ContextVar[bool] = ContextVar("step_by_step", default=False)


@contextmanager
def step_by_step() -> Iterator[None]:
    """Let the host take part in each step of a round inside the block, for comparisons."""
    token = _step_by_step.set(True)
    try:
        yield
    finally:
        _step_by_step.reset(token)


def whole_rounds(
    path: DecodingPath, drafter: Drafter, prompt_ids: Sequence[int]
) -> DeviceRounds | None:
    """The whole rounds of a lane; None where its drafts are not made on the target's device, and
    after a prompt of one token: a round begins with two."""
    assert isinstance(path, GraphPath)
    if _step_by_step.get() or len(prompt_ids) < 2 or path.run.device != path.engine.device:
        return None
    if path.run.settings.gamma == 0:
        return DeviceRounds(path, None, None)
    drafting = drafter.path
    if not isinstance(drafting, GraphPath) or drafting.engine.device != path.engine.device:
        return None
    return DeviceRounds(path, drafting, drafter.layers)


class DeviceRounds:
    """The `WholeRounds` of the static engine. drafting: the path of the drafts, None without any;
    layers: of the target that draft."""

    def __init__(self, path: GraphPath, drafting: GraphPath | None, layers: int | None) -> None:
        self._path = path
        self._drafting = drafting
        self._layers = layers
        self._run = path.run
        self._gamma = path.run.settings.gamma
        self._turn = 0
        self._state: Tensor | None = None  # on the device, after all enqueued rounds
        self._committed = 0  # tokens after the last round that was read
        self._ahead: EnqueuedRound | None = None
        self._last: EnqueuedRound | None = None

    def trial(self, ids: Sequence[int]) -> str | None:
        """Make the programs for rounds after `ids`, and run the new ones, so that no round has to.
        Returns the reason of a failure, or None."""
        draws = torch.zeros(2 * self._gamma + 1, dtype=torch.float64, device=self._run.device)
        state = self._uploaded(ids)
        for _ in range(TURNS):
            try:
                seconds = self._path.engine.program_seconds
                program = self._next_program(state, draws, len(ids))
                if self._path.engine.program_seconds == seconds:
                    continue  # an earlier run has made and tried it
                begun = Mark(self._run.device)
                begun.set()
                program(state, draws)
                trial = EnqueuedRound(program, begun)
                trial.numbers()
                trial.seconds()  # the mark within a program is what older versions of torch lack
            except (RuntimeError, TypeError) as error:
                return str(error).splitlines()[0]
            if program.capture_failed:
                return "it could not be captured"
        return None

    def fits(self, ids: Sequence[int], gamma: int) -> bool:
        if gamma != self._gamma or self._path.engine.length != len(ids) - 1:
            return False
        if self._drafting is None or self._drafting is self._path:
            return True
        return 1 <= len(ids) - self._drafting.engine.length <= FED

    def round(self, ids: Sequence[int], is_followed: bool) -> TimedRound:
        length = len(ids)
        enqueued = self._ahead
        self._ahead = None
        if enqueued is None:
            enqueued = self._enqueue(ids, length)
        if is_followed:
            self._ahead = self._enqueue(None, length + self._gamma + 1)
        self._last = enqueued

        *drafted, accepted, next_id = enqueued.numbers()
        self._committed = length + accepted + 1
        self._path.engine.length = length + self._gamma
        if self._drafting is not None and self._drafting is not self._path:
            # The last drafted token was not fed.
            self._drafting.engine.length = length + self._gamma - 1
        verdict = Verdict.on(self._gamma, accepted, next_id)
        judged = self._judged(enqueued.program, drafted, verdict)
        draft_seconds, verify_seconds = enqueued.seconds()
        return TimedRound(judged, draft_seconds, verify_seconds, is_followed)

    def reading(self) -> AbstractContextManager[None]:
        if self._last is None or self._run.device.type != "cuda":
            return nullcontext()
        stream = _reading_stream(self._run.device)
        self._last.done.hold(stream)
        context: AbstractContextManager[None] = torch.cuda.stream(stream)
        return context

    def _judged(self, program: Program, drafted: list[int], verdict: Verdict) -> JudgedRound:
        gamma = self._gamma
        _, draws = program.inputs
        _, numbers, p, logits, *of_drafts = program.outputs
        draft = None
        if gamma:
            q, draft_logits = of_drafts
            draft = Draft(numbers[:gamma], q, [draft_logits])
        u = draws[gamma:-1]
        return JudgedRound(draft, drafted, logits, p, u, verdict)

    def _enqueue(self, ids: Sequence[int] | None, max_length: int) -> EnqueuedRound:
        """Enqueue the round after `ids`, or, for None, after the round that was enqueued last.
        max_length: the most tokens that may be committed before it."""
        begun = Mark(self._run.device)
        begun.set()
        state = self._state
        if ids is not None and (state is None or self._committed != len(ids)):
            state = self._uploaded(ids)  # the host has decoded without this program
        assert state is not None
        # Drawn in the order of the other paths: for the drafts, their verdict, the next token.
        counts = [self._gamma, self._gamma, 1]
        if self._gamma == 0:
            counts = [1]
        draws = torch.cat([uniforms(count, self._run.draws) for count in counts])
        program = self._next_program(state, draws, max_length)
        self._state = program(state, draws)[0]
        return EnqueuedRound(program, begun)

    def _next_program(self, state: Tensor, draws: Tensor, max_length: int) -> Program:
        """The program whose turn it is."""
        end = max_length + self._gamma  # of the positions that it writes
        target = self._path.engine.reserve(end)
        draft = None
        draft_key: Hashable = None
        if self._drafting is not None:
            draft = self._drafting.engine.reserve(end)
            draft_key = (draft.number, draft.capacity, self._layers)
        turn = self._turn
        self._turn = (turn + 1) % TURNS
        key: Hashable = ("round", turn, self._gamma, draft_key, *self._path.verdict_key)
        function = RoundFunction(self._run, target, draft, self._layers)
        return self._path.engine.program(key, function, (state, draws), is_vital=False)

    def _uploaded(self, ids: Sequence[int]) -> Tensor:
        """Upload the state of a lane that has committed `ids`, at least two."""
        is_on_gpu = self._run.device.type == "cuda"
        state = torch.tensor([len(ids), *ids[-2:]], pin_memory=is_on_gpu)
        return state.to(self._run.device, non_blocking=True)


@cache
def _reading_stream(device: torch.device) -> Any:
    """The stream on which finished rounds are read while the next one runs."""
    return torch.cuda.Stream(device)


class EnqueuedRound:
    """A round that the device runs, or has run. begun: set before the host prepared it."""

    def __init__(self, program: Program, begun: Mark) -> None:
        self.program = program
        self.done = Mark(program.outputs[0].device)
        self._begun = begun
        self._numbers: Tensor = program.outputs[1]
        if self._numbers.device.type == "cuda":  # on other devices a read is a copy that waits
            on_host = torch.empty(self._numbers.shape, dtype=torch.int64, pin_memory=True)
            self._numbers = on_host.copy_(self._numbers, non_blocking=True)
        self.done.set()

    def numbers(self) -> list[int]:
        """The drafted ids, the number accepted and the next id. This is the round's only wait."""
        self.done.wait()
        numbers: list[int] = self._numbers.tolist()
        return numbers

    def seconds(self) -> tuple[float, float]:
        """Seconds of the drafts, and of the rest of the round, once it has been read."""
        function = self.program.function
        assert isinstance(function, RoundFunction)
        drafted = function.drafted
        return self._begun.seconds_until(drafted), drafted.seconds_until(self.done)


class RoundFunction:
    """The computation of a round, as the function of a program.

    target, draft: their caches; draft is the target's own where its first `layers` draft, and None
    without drafts. drafted: set when all drafts are drawn.
    """

    def __init__(
        self,
        run: RunContext,
        target: InPlaceCache,
        draft: InPlaceCache | None,
        layers: int | None,
    ) -> None:
        self.drafted = Mark(run.device, is_captured=True)
        self._run = run
        self._target = target
        self._draft: weakref.ref[InPlaceCache] | None = None
        if draft is not None:
            # The program is in the target's cache, which must not keep another one alive.
            self._draft = weakref.ref(draft)
        self._layers = layers

    def __call__(self, state: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
        """state: int64 [3], the number of committed tokens and the last two of them. draws: fp64
        [2 gamma + 1], for the drafts, for their verdict, and for the token that follows.

        Returns the next state; int64 [gamma + 2], the drafted ids, how many are accepted and the
        next id; p and logits, fp32 [gamma + 1, vocab]; and q and the logits of the draft, fp32
        [gamma, vocab], where a model drafts.
        """
        settings = self._run.settings
        gamma = len(draws) // 2
        length = state[:1]
        last = state[2:]
        drafts = self._drafts(state, draws[:gamma])
        self.drafted.set()

        feed = torch.cat([last, *drafts.ids])  # [gamma + 1]
        positions = length - 1 + torch.arange(gamma + 1, device=state.device)
        logits = self._target.logits(feed, positions, gamma + 1)
        p = probabilities(logits, settings)
        q = torch.cat([p[:0], *drafts.q])
        rule = self._run.other_rule or decide_on_tensors
        decision = rule(p, q, feed[1:], draws[gamma:-1], PremadeDraws(draws[-1:]))

        accepted, next_id = decision.split(1)
        last_but_one = feed.gather(0, accepted)
        next_state = torch.cat([length + accepted + 1, last_but_one, next_id])
        outputs = (next_state, torch.cat([feed[1:], decision]), p, logits)
        if gamma == 0:
            return outputs
        return (*outputs, q, torch.cat(drafts.logits))

    def _drafts(self, state: Tensor, draws: Tensor) -> Drafts:
        drafts = Drafts([], [], [])
        if self._draft is None:
            return drafts
        cache = self._draft()
        assert cache is not None, "a run keeps the caches of its rounds alive"
        fed = FED
        if cache is self._target:  # it lacks the last token alone
            fed = 1
        feed = state[-fed:]
        positions = state[:1] + torch.arange(-fed, 0, device=state.device)
        for draw in draws.split(1):
            logits = cache.logits(feed, positions, 1, self._layers)
            q, feed = sample(logits, self._run.settings, draw)
            positions = positions[-1:] + 1
            drafts.ids.append(feed)
            drafts.q.append(q)
            drafts.logits.append(logits)
        return drafts


@dataclass(frozen=True, slots=True)
class Drafts:
    """Of each draft step: the id, int64 [1], the row that it was drawn from and its logits, fp32
    [1, vocab]."""

    ids: list[Tensor]
    q: list[Tensor]
    logits: list[Tensor]


class Mark:
    """A mark in a device's stream of work, at which the device records its time. is_captured:
    whether it is part of a program.
    """

    def __init__(self, device: torch.device, *, is_captured: bool = False) -> None:
        self._event: Any = None
        self._seconds = 0.0
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True, external=is_captured)

    def set(self) -> None:
        """Set it after all work enqueued so far."""
        if self._event is not None:
            self._event.record()
        else:
            self._seconds = time.perf_counter()

    def wait(self) -> None:
        """Block the host until the device has reached it."""
        if self._event is not None:
            self._event.synchronize()

    def hold(self, stream: Any) -> None:
        """Make a CUDA stream wait for it."""
        self._event.wait(stream)

    def seconds_until(self, later: Mark) -> float:
        """Device seconds between two marks, both of which must be reached."""
        if self._event is None:
            return later._seconds - self._seconds
        milliseconds: float = self._event.elapsed_time(later._event)
        return milliseconds / 1000
