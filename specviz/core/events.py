"""The events of a lane and of a race, as frozen dataclasses."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .lanes import BASELINE, Lane
from .messages import Message
from .products import arithmetic_in_words
from .settings import Settings

Outcome: TypeAlias = Literal["accepted", "rejected", "ignored", "corrected", "bonus", "untold"]
OUTCOMES: tuple[Outcome, ...] = ("accepted", "rejected", "ignored", "corrected", "bonus")
"""The outcomes of a token. The last token of a watched server's step is "untold" if the server does
not report how many tokens it drafted: it is a correction, a bonus token or, where the text ended,
perhaps an accepted draft."""

UNKNOWN_ID = -1
"""The id of a token that a watched server did not report, such as a draft that it rejected. Its
text is empty, and its JSON has no id."""

EndReason: TypeAlias = Literal["eos", "length", "context", "stop", "stopped"]
"""The reasons why a lane ends: an end-of-text token, `max_new_tokens`, a full context, a stop text
of the settings, or a request to stop."""

SERVER = "server"
"""The form of a target whose distributions come over a network."""

STREAMED = 32
"""The number of tokens streamed to measure a server's own speed."""

DIGITS = 8
"""The number of decimals of listed probabilities."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the five likeliest tokens at a position, with its probability."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Token:
    """One drafted or emitted token, with the numbers that decided its outcome.

    p, q: its probability under the processed target and draft distributions; `q` is None for
        a token that no draft proposed, `p` is None for a drafted token that was never judged.
    u: the uniform draw in [0, 1) that judged it: accepted if and only if u < p / q (Leviathan
        et al. 2022, arXiv 2211.17192, algorithm 1). With other verdicts (`sides.verdicts`):
        block keeps all drafts up to the last with u < threshold; exact-match draws the target's
        own token with it; typical uses none.
    weight: the running product of p / q, at most 1, if the verdict is block.
    threshold: the limit that u must be below (block) or p above (typical). Block judges a round's
        drafts together, so its ignored tokens have p, u, weight and threshold too.
    chance: the probability that the rule keeps a draft at this position, whichever token is drawn
        from q as the draft: with exact-match the sum over the vocabulary of p q, with typical the
        sum of q over the tokens whose p is above the threshold. None with other verdicts, and for
        a token that was not judged. It does not depend on the token that was drafted.
    beta: the sum over the vocabulary of min(p, q) at its position, if it was judged. A server that
        samples by itself reports neither beta nor top_p nor top_residual.
    top_p, top_q, top_residual: the five likeliest tokens of each distribution at its position
        (`Settings.top_p` is another thing, the mass that nucleus sampling keeps);
        the residual norm(max(0, p - q)) only if a token was drawn from it: with block of
        weight p - q, with exact-match p without the rejected token. In a greedy run p and
        q are one-hot: the lists then hold the models' softmax at temperature 1, and `soft_p` and
        `soft_q` hold this token's probability in it.
    seen: for a draft from counts, how often the end of the text before it had occurred earlier in
        the text with a token after it; q (in a greedy run `soft_q` and `top_q`) are shares of it.
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
    weight: float | None = None
    threshold: float | None = None
    chance: float | None = None
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round: some drafted tokens, and one target pass that judges them.

    lane, index: which lane, and the round's number in it, from 0.
    drafted: all drafted tokens, in order; empty in the baseline lane.
    last: the corrected or bonus token after the accepted ones; None if the text ended before it.
    draft_seconds, verify_seconds: time of drafting; time of the target pass, its probabilities
        and the verdict.
    overhead_seconds: the rest of the round's time on the lane's clock.
    clock: the lane's seconds at the end of the round, without prefill.
    wall: the lane's wall-clock seconds since it began: with its engines, prefill, texts
        and lists of likeliest tokens, without the other lane and the time between rounds. None in
        recordings made before it was measured.
    exchanged: bytes of the requests and answers of its target pass, if the target is on a server.
    server_seconds: the server's reported time for them, a part of `verify_seconds`; the rest is the
        network, the server's queue and this machine. None if it does not report one.
    """

    lane: Lane
    index: int
    drafted: list[Token]
    last: Token | None
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float
    clock: float
    wall: float | None = None
    exchanged: int | None = None
    server_seconds: float | None = None

    @property
    def tokens(self) -> list[Token]:
        """All tokens of the round: the drafted ones, then the last."""
        if self.last is None:
            return list(self.drafted)
        return [*self.drafted, self.last]

    @property
    def emitted(self) -> list[Token]:
        """The tokens that the round added to the text: the accepted ones, then the last."""
        return [token for token in self.tokens if token.outcome not in ("rejected", "ignored")]

    @property
    def text(self) -> str:
        """The text that the round added."""
        return "".join(token.text for token in self.emitted)

    @property
    def reads_prompt(self) -> bool:
        """Whether it is a watched server's first round, whose token came from the prefill:
        the clock begins after it, so speeds and tau leave it out."""
        return self.index == 0 and self.clock == 0.0 and not self.drafted

    @property
    def untold(self) -> bool:
        """Whether a watched server does not report how many tokens it drafted. `drafted` then has
        only the accepted ones."""
        return self.last is not None and self.last.outcome == "untold"


SCHEMA = 2
"""The version of the events as JSON."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first event of a race: its prompt, models, settings and machine.

    prompt, prompt_ids: the text and the ids that the models read.
    question: the part of `prompt` that was asked, if the rest of it is the target's chat template;
        None if the text goes on from `prompt`.
    messages: the turns that were asked, the last one being `question`; None if it is the only one.
    lanes: speculative lane -> its settings, in their order; one lane, "speculative", in the
        ordinary race with the baseline.
    drafts: speculative lane -> its draft model, described as the target; None without one.
    target: {"name": str, "parameters": int, "form": str, "revision": str | None,
        "context": int | None}; parameters are 0 if unknown, form is the name of the engine,
        revision the hub's commit if the model came from the hub, context its context length in
        tokens if its config has a limit (older recordings lack it). If a draft has another
        tokenizer than the target, "shared" is how many tokens both have.
    device, processor, dtype, versions, threads, date: where and when it ran; date is ISO 8601
        in UTC. threads: torch's.
    lane_threads: lane -> how many threads share its passes; older recordings lack it.
    memory: {"texts": int, "tokens": int}, the earlier texts that the drafter "suffix" was given;
        None if it was given none.
    prefill_seconds: lane -> model ("target", "draft") -> seconds.
    mode: "interleaved" or "sequential".
    source: the name and version of the serving engine whose own speculation this run only watched,
        such as "vLLM 0.32.0"; None if target and drafts were judged here. Such a run has no
        probabilities, its rounds have times but no parts of them, and its settings have no drafter:
        the server decides how many tokens a step drafts. Without a second server there is no
        baseline lane, and `prefill_seconds` lacks it.
    streaming_rate: tokens per second of the server's own greedy stream, measured before the race
        by one request of `STREAMED` tokens from this machine; None without a server.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    lanes: dict[Lane, Settings]
    drafts: dict[Lane, dict[str, Any] | None]
    target: dict[str, Any]
    device: str
    dtype: str
    versions: dict[str, str]
    threads: int
    date: str
    prefill_seconds: dict[str, dict[str, float]]
    mode: str = "interleaved"
    processor: str = ""
    lane_threads: dict[str, int] | None = None
    memory: dict[str, int] | None = None
    source: str | None = None
    streaming_rate: float | None = None
    question: str | None = None
    messages: tuple[Message, ...] | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the first lane."""
        return next(iter(self.lanes.values()))

    @property
    def draft(self) -> dict[str, Any] | None:
        """The draft model of the first lane."""
        return next(iter(self.drafts.values()))

    @property
    def arithmetic(self) -> str:
        """A description of how the target's products are computed."""
        return arithmetic_in_words(self.dtype, self.target.get("products"))

    @property
    def on_server(self) -> bool:
        """Whether the target is on a server. Its times are then those of requests: with the
        network, the server's queue and its other users."""
        return bool(self.target["form"] == SERVER) and self.source is None

    @property
    def speculative(self) -> tuple[Lane, ...]:
        """The names of the lanes with drafts, in order."""
        return tuple(self.lanes)

    @property
    def all_lanes(self) -> tuple[Lane, ...]:
        """The names of all lanes, the baseline last if there is one."""
        if self.source is None or BASELINE in self.prefill_seconds:
            return (*self.speculative, BASELINE)
        return self.speculative

    def settings_of(self, lane: Lane) -> Settings:
        """The settings of a lane; the baseline's are the first lane's, without its drafts."""
        return self.lanes.get(lane, self.settings)

    def draft_of(self, lane: Lane) -> dict[str, Any] | None:
        """The draft model of a speculative lane, described as above."""
        return self.drafts[lane]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between the texts of two greedy lanes.

    index: its position among the emitted tokens, from 0. margin: the target's largest logit minus
    its second largest at that position, in nats, from the baseline lane; None if it is unknown.
    """

    index: int
    margin: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of a speculative lane's text with the baseline's.

    identical: whether both lanes emitted the same ids, up to the length of the shorter one; None
        when sampling, because two independent samples of one distribution may differ.
    compared: how many leading tokens `identical` covers.
    divergence: the first difference, if there is one and the run is greedy.
    """

    identical: bool | None = None
    compared: int = 0
    divergence: Divergence | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a race ended.

    reasons: lane -> why it ended.
    lanes: speculative lane -> its `Agreement`; None if no text was compared.
    counted: by how much the counters of a watched server moved while its stream ran: "steps",
        "drafted" and "accepted" tokens of all its users; None if it has none.
    """

    reasons: dict[str, EndReason]
    lanes: dict[Lane, Agreement] | None = None
    counted: dict[str, int] | None = None

    @property
    def identical(self) -> bool | None:
        """That of the first lane's `Agreement`."""
        return self._first.identical

    @property
    def compared(self) -> int:
        """That of the first lane's `Agreement`."""
        return self._first.compared

    @property
    def divergence(self) -> Divergence | None:
        """That of the first lane's `Agreement`."""
        return self._first.divergence

    @property
    def _first(self) -> Agreement:
        if not self.lanes:
            return Agreement()
        return next(iter(self.lanes.values()))

    def agreement(self, lane: Lane) -> Agreement:
        """The agreement of a speculative lane."""
        return Agreement() if self.lanes is None else self.lanes[lane]


Event: TypeAlias = Header | Round | End

RaceEvents: TypeAlias = Generator[Event, bool | None, None]
"""The events of a race. Sending it True after one stops all lanes and returns the `End`."""


def margin_of(token: Token) -> float | None:
    """How much likelier the target found its first choice than its second, in nats; None if its
    likeliest tokens are unknown."""
    if not token.top_p:
        return None
    first = token.top_p[0].probability
    second = token.top_p[1].probability if len(token.top_p) > 1 else 0.0
    # Listed probabilities are rounded, the second perhaps to 0: the margin is then at least this.
    return math.log(first / max(second, 0.5 * 10**-DIGITS))


def emitted_tokens(rounds: Iterable[Round]) -> list[Token]:
    """All tokens that the rounds added to the text."""
    tokens: list[Token] = []
    for round_ in rounds:
        tokens += round_.emitted
    return tokens


def agreement_of(rounds: Sequence[Round], alone: Sequence[Round]) -> Agreement:
    """Compare the text of a greedy lane with the baseline's."""
    ours = emitted_tokens(rounds)
    baseline = emitted_tokens(alone)
    compared = min(len(ours), len(baseline))
    for index in range(compared):
        if ours[index].id != baseline[index].id:
            divergence = Divergence(index, margin_of(baseline[index]))
            return Agreement(identical=False, compared=compared, divergence=divergence)
    return Agreement(identical=True, compared=compared)
