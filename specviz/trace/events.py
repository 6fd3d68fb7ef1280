"""What a lane and a race yield: frozen, typed, and the same for all who read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..settings import Settings

Lane: TypeAlias = Literal["speculative", "baseline"]
LANES: tuple[Lane, Lane] = ("speculative", "baseline")

Outcome: TypeAlias = Literal["accepted", "rejected", "ignored", "corrected", "bonus"]
OUTCOMES: tuple[Outcome, ...] = ("accepted", "rejected", "ignored", "corrected", "bonus")

EndReason: TypeAlias = Literal["eos", "length", "context", "stop", "stopped"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of a top five: a token and its probability."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Token:
    """One drafted or emitted token and what was known when it was judged.

    p, q: its probability under the processed target and draft distributions; `q` is None for
        a token that no draft proposed, `p` is None for a draft that was never judged.
    u: the uniform draw in [0, 1) that it was judged with: accepted if and only if u < p / q.
    beta: sum over the vocabulary of min(p, q) at its position, if it was judged.
    top_p, top_q, top_residual: the five likeliest tokens of each distribution at its position;
        the residual norm(max(0, p - q)) only where it was drawn from. When greedy, where p and
        q are one-hot, the lists hold the models' own softmax at temperature 1 instead, and
        `soft_p` and `soft_q` hold this token's probability in it.
    """

    id: int
    text: str
    outcome: Outcome
    p: float | None = None
    q: float | None = None
    u: float | None = None
    beta: float | None = None
    soft_p: float | None = None
    soft_q: float | None = None
    top_p: tuple[Choice, ...] = ()
    top_q: tuple[Choice, ...] = ()
    top_residual: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One draft run and one target pass over it.

    lane, index: which lane, and the round's number in it, from 0.
    drafted: all drafted tokens, in order; empty in the baseline lane.
    emitted: the accepted ones, then the corrected or bonus one (missing if an end cut it).
    draft_seconds, verify_seconds: the draft run; the target pass, probabilities and verdict.
    overhead_seconds: all else of the round that the lane's clock counts.
    clock: the lane's seconds at the end of the round, prefill not included.
    """

    lane: Lane
    index: int
    drafted: list[Token]
    emitted: list[Token]
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float
    clock: float


@dataclass(frozen=True, slots=True)
class Header:
    """What is known before the first round.

    prompt, prompt_ids: the text shown and the ids that were fed.
    target, draft: {"name": str, "parameters": int, "form": str, "revision": str | None}; the
        revision is the hub's commit, if it came from there. draft is None without one.
    device, processor, dtype, versions, threads, date: where and when it ran; date is ISO 8601
        in UTC.
    prefill_seconds: lane -> model ("target", "draft") -> seconds.
    mode: "interleaved" or "sequential".
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    settings: Settings
    target: dict[str, Any]
    draft: dict[str, Any] | None
    device: str
    dtype: str
    versions: dict[str, str]
    threads: int
    date: str
    prefill_seconds: dict[str, dict[str, float]]
    mode: str = "interleaved"
    processor: str = ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two greedy lanes part: the first differing place among the emitted tokens, and the
    target's top-two margin there (difference of logits in nats, from the baseline lane)."""

    index: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class End:
    """How a race ended.

    reasons: lane -> why it ended; "stopped" if it was cut short from outside.
    identical: whether both lanes emitted the same ids as far as both got; None when sampling,
        where two lanes are two draws from one law and need not agree.
    compared: how many leading tokens `identical` speaks of.
    divergence: the first difference, if there is one and the run is greedy.
    """

    reasons: dict[str, EndReason]
    identical: bool | None = None
    compared: int = 0
    divergence: Divergence | None = None


Event: TypeAlias = Header | Round | End
