"""The rounds that a configuration would run along a known text, predicted without a run.

One run gives the text. The drafts at each position follow without another run: a model reads the
whole text in one pass, and copied drafts are looked up again. So the rounds of every gamma and
policy are known before any of them is measured.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from ...core.cost import EAGER, extra_token_cost, pass_cost, reads_again
from ...core.drafter_choice import make_drafter
from ...core.engine_choice import make_engine, make_state_engine
from ...core.events import Round
from ...core.lanes import SPECULATIVE
from ...core.model_facts import context_length
from ...core.pair import Pair
from ...core.paths import make_context
from ...core.policy import DraftCosts, make_policy
from ...core.protocols import DecodingPath, Engine, StateEngine
from ...core.registry import drafter_kind
from ...core.settings import TOKEN_VERDICT, Settings
from ...core.states import EAGLE
from ...core.tensor_draws import probabilities
from ...runs.metrics import ratio
from ...runs.trace import Trace
from ...sides.early_exit.drafter import best_exit

CHUNK = 64  # tokens whose logits are held at once
MIN_TOKENS = 16  # of a text from which something is predicted
DRAWS = 32  # simulated runs of a text that was sampled; a greedy one needs one run


class RoundCounts(NamedTuple):
    """The numbers of drafted, judged, accepted and emitted tokens of a round."""

    drafted: int
    judged: int
    accepted: int
    emitted: int


Rounds: TypeAlias = Counter[RoundCounts]
"""The number of rounds by their counts; such counters can be added."""


def rounds_of(trace: Trace) -> Rounds:
    """Count the rounds of the speculative lane of a race."""
    return Counter(map(_counts_of, trace.lane(SPECULATIVE)))


def _counts_of(r: Round) -> RoundCounts:
    return RoundCounts(
        drafted=len(r.drafted),
        judged=sum(token.outcome != "ignored" for token in r.drafted),
        accepted=sum(token.outcome == "accepted" for token in r.drafted),
        emitted=len(r.emitted),
    )


def figures(rounds: Rounds) -> dict[str, Any]:
    """Derive the fields of `RoundFigures`."""
    total = rounds.total()
    drafted = 0
    judged = 0
    accepted = 0
    emitted = 0
    for counts, number in rounds.items():
        drafted += counts.drafted * number
        judged += counts.judged * number
        accepted += counts.accepted * number
        emitted += counts.emitted * number
    longest = max((counts.drafted for counts in rounds), default=0)
    return {
        "tau": ratio(emitted, total),
        "alpha": ratio(accepted, judged),
        "alpha_by_position": tuple(_alpha_at(rounds, position) for position in range(longest)),
        "efficiency": ratio(accepted, drafted),
        "drafted": drafted / max(1, total),
    }


def _alpha_at(rounds: Rounds, position: int) -> float | None:
    """alpha of the drafted tokens at a position of their round, from 0."""
    judged = sum(number for counts, number in rounds.items() if counts.judged > position)
    accepted = sum(number for counts, number in rounds.items() if counts.accepted > position)
    return ratio(accepted, judged)


@dataclass(frozen=True, slots=True)
class KnownText:
    """A text that the target wrote. ids: the prompt, of `begin` tokens, and its continuation.
    budget: the maximum of committed tokens. limit: the target's context."""

    ids: tuple[int, ...]
    begin: int
    budget: int
    limit: int | None


def known_text(pair: Pair, trace: Trace) -> KnownText | None:
    """The text that the speculative lane of a race wrote. None if it has fewer than `MIN_TOKENS`
    tokens or was cut off: how many drafts would have been accepted there is unknown."""
    written = [token.id for r in trace.lane(SPECULATIVE) for token in r.emitted]
    is_whole = trace.end is not None and trace.end.reasons[SPECULATIVE] != "stopped"
    if not is_whole or len(written) < MIN_TOKENS:
        return None
    header = trace.header
    begin = len(header.prompt_ids)
    return KnownText(
        ids=(*header.prompt_ids, *written),
        begin=begin,
        budget=begin + header.settings.max_new_tokens,
        limit=context_length(pair.target),
    )


def is_predictable(settings: Settings, pair: Pair) -> bool:
    """Whether the rounds of these settings follow from a text. A sampled text needs the token rule,
    whose verdicts at different positions are independent given the text, and a drafter whose q
    along the text is known. Of heads only EAGLE-3 reads nothing but the target's states. The
    confidence of drafted tokens that the text does not contain is unknown."""
    if reads_again(pair.target, EAGER):
        return False  # the costs of passes that read kept tokens again are unknown
    kind = drafter_kind(settings.drafter)
    if settings.gamma_policy == "confidence" and kind.has_model:
        return False
    if kind.predicted == "chained":
        return settings.greedy and (pair.head is None or pair.head.kind == EAGLE)
    if settings.greedy:
        return kind.predicted is not None
    if settings.effective_verdict != TOKEN_VERDICT:
        return False
    return kind.predicted == "position" or kind.certain


def acceptance_along(pair: Pair, text: KnownText, settings: Settings) -> Sequence[float] | None:
    """The probability of each token after the prompt that the drafter of `settings` drafts it and
    the verdict accepts it; None for drafters that copy or translate.

    A token y that the target draws with probability p(y) is an accepted draft with probability
    min(1, q(y) / p(y)) in whichever round judges it: of the mass p(y), the part min(p(y), q(y))
    comes from drafts (Leviathan et al. 2022, arXiv 2211.17192, appendix A.1). Raises `PairError` if
    the pair has no such drafter.
    """
    kind = drafter_kind(settings.drafter)
    if kind.predicted != "position" or (kind.needs == "draft" and pair.shared is not None):
        return None
    with torch.inference_mode():
        if kind.needs == "layers":
            layers = best_exit(pair.target, pair.vocab).layers
            q = _probabilities_of(pair, pair.target, text, settings, layers)
        else:
            q = _probabilities_of(pair, pair.draft_model, text, settings)
        if settings.greedy:  # the target's own distribution is one-hot at the text
            return q
        p = _probabilities_of(pair, pair.target, text, settings)
        return [_chance(p_token, q_token) for p_token, q_token in zip(p, q, strict=True)]


def _chance(p: float, q: float) -> float:
    if p <= 0:
        return 0.0
    return min(1.0, q / p)


def predicted_rounds(
    pair: Pair, text: KnownText, settings: Settings, known: Sequence[float] | None
) -> Rounds:
    """The rounds of a run that writes this text: exact ones if its drafts are certain, else those
    of `DRAWS` simulated runs together. known: the result of `acceptance_along`."""
    drafts = DraftsAlong(pair, text, settings, known)
    generator = random.Random(0)  # nosec B311
    is_certain = known is None or settings.greedy
    runs = 1 if is_certain else DRAWS
    rounds: Rounds = Counter()
    for _ in range(runs):
        rounds.update(simulated_rounds(drafts, settings, generator))
    return rounds


def simulated_rounds(
    drafts: DraftsAlong, settings: Settings, generator: random.Random
) -> Iterator[RoundCounts]:
    """Simulate a run that writes the text; yields the counts of each round.

    It is the loop of `core.loop`, with verdicts drawn from the drafts' chances, which are 0 or 1 if
    the text is greedy.
    """
    text = drafts.text
    policy = make_policy(settings, lambda: drafts.costs)
    length = text.begin
    end = len(text.ids)
    while length < end:
        room = min(text.budget - length - 1, drafts.room(length), policy.gamma)
        if text.limit is not None:
            room = min(room, text.limit - length)
        chances: list[float] = []
        if room > 0:
            chances = drafts.chances(length, room)
        drafted = len(chances)
        accepted = _accepted(chances, generator)
        policy.observe(drafted, accepted)
        left = end - length
        if accepted >= left:  # the text ends within the accepted drafts
            yield RoundCounts(drafted, judged=left, accepted=left, emitted=left)
            return
        judged = min(accepted + 1, drafted)
        emitted = accepted + 1
        yield RoundCounts(drafted, judged=judged, accepted=accepted, emitted=emitted)
        length += accepted + 1


def _accepted(chances: Sequence[float], generator: random.Random) -> int:
    """Draw how many drafts are accepted before the first rejection."""
    for position, chance in enumerate(chances):
        if chance < 1.0 and generator.random() >= chance:
            return position
    return len(chances)


class DraftsAlong:
    """The drafts of `settings` along a text.

    known: the result of `acceptance_along`. room: (length) -> the number of tokens that can be
    drafted after `length` committed ones. costs: c and the cost of a further token in a target
    pass, from sizes, for policies.
    """

    def __init__(
        self, pair: Pair, text: KnownText, settings: Settings, known: Sequence[float] | None
    ) -> None:
        self.text = text
        self._known = known
        self._states: _States | None = None
        context = make_context(settings, pair.vocab, pair.device, None, SPECULATIVE)
        engine: Engine
        path: DecodingPath
        if drafter_kind(settings.drafter).predicted == "chained":
            state_engine = make_state_engine(pair.target, pair.vocab)
            self._states = _States(state_engine, text.ids)
            engine = state_engine
            path = cast(DecodingPath, self._states)
        else:
            engine = make_engine(pair.target, pair.vocab)
            path = engine.path(context)
        self._drafter = make_drafter(pair, context, path)
        self.room = self._drafter.room
        c = self._drafter.step_cost() / pass_cost(pair.target, engine.name)
        self.costs = DraftCosts(
            c=c,
            extra_token=extra_token_cost(pair.target, engine.name),
            reads_again=reads_again(pair.target, engine.name),
        )

    def chances(self, length: int, count: int) -> list[float]:
        """The probabilities that the drafts of a round are accepted: entry i is that of draft i +
        1, given that all before it were and that the text continues as it does. There are as many
        entries as drafts.

        length: committed tokens when the round begins, which must not decrease from call to call
        unless `known` is given. count: the maximum of drafts.
        """
        if self._known is not None:  # a draft depends on the text before it alone
            begin = length - self.text.begin
            return _padded(self._known[begin : begin + count], count)
        drafted_ids = self._draft(length, count)
        written_ids = self.text.ids[length : length + len(drafted_ids)]
        # The draft is certain, so where it is the text's own token it was surely accepted.
        chances = [
            float(drafted == written)
            for drafted, written in zip(drafted_ids, written_ids, strict=False)
        ]
        return _padded(chances, len(drafted_ids))

    def _draft(self, length: int, count: int) -> list[int]:
        """Let the drafter draft again what follows `length` committed tokens."""
        ids = self.text.ids
        if self._states is not None:
            is_prompt = self._states.show(length - 1)
            if is_prompt:
                self._drafter.prefill(ids[: length - 1])
            else:
                self._drafter.rollback(length - 1)
        draft = self._drafter.draft(ids[:length], count)
        if draft is None:
            return []
        drafted_ids: list[int] = draft.ids.tolist()
        return drafted_ids


def _padded(chances: Sequence[float], count: int) -> list[float]:
    """Append zeros, up to `count`: chances beyond the end of the text are unknown, and no verdict
    reads them."""
    return [*chances, *[0.0] * (count - len(chances))]


class _States:
    """The target's path and engine for a drafter that reads hidden states: the text is read once,
    and each round sees the states of the tokens before it."""

    def __init__(self, reader: StateEngine, ids: Sequence[int]) -> None:
        self.engine = self
        self._reader = reader
        self._ids = ids
        self._shown = 0  # tokens whose states the drafter has seen

    def keep_states(self, layers: Sequence[int]) -> None:
        """Read the text and keep the states after these numbers of layers."""
        self._reader.keep_states(layers)
        self._reader.forward(_tensor(self._ids[:-1], self._reader), keep=1)
        self._whole = self._reader.states  # [tokens, states * width]
        self.states = self._whole

    def show(self, length: int) -> bool:
        """Set the states to those of the tokens since the last call, as a target pass would;
        returns whether they are the prompt's."""
        is_prompt = self._shown == 0
        if is_prompt:
            self.states = self._whole[:length]
        else:
            self.states = self._whole[self._shown :]
        self._shown = length
        return is_prompt


def _probabilities_of(
    pair: Pair, model: Any, text: KnownText, settings: Settings, layers: int | None = None
) -> list[float]:
    """The probability of each token after the prompt, given those before it; 0 past the model's
    context, where it never drafts."""
    ids = text.ids
    begin = text.begin
    engine = make_engine(model, pair.vocab)
    token_probabilities: list[float] = []
    last = min(len(ids) - 1, context_length(model) or len(ids))
    has_prefix = 1 < begin <= last
    if has_prefix:
        engine.forward(_tensor(ids[: begin - 1], engine), keep=1, layers=layers)
    for start in range(begin - 1, last, CHUNK):
        end = min(start + CHUNK, last)
        fed = _tensor(ids[start:end], engine)
        logits = engine.forward(fed, keep=len(fed), layers=layers)
        distributions = probabilities(logits, settings)  # [fed, vocab]
        next_ids = _tensor(ids[start + 1 : end + 1], engine)  # [fed]
        of_next_ids = distributions.gather(-1, next_ids.unsqueeze(-1))  # [fed, 1]
        token_probabilities += of_next_ids.squeeze(-1).tolist()
    return _padded(token_probabilities, len(ids) - begin)


def _tensor(ids: Sequence[int], engine: Engine) -> Tensor:
    return torch.tensor(list(ids), device=engine.device)
