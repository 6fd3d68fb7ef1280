"""Which drafts a target would accept at every place of a text that is already known.

One run gives the text. A drafter's view of every place of it follows without a further run: a
model reads the whole text in one pass, and drafts that are copied from the text are looked up
again. So the rounds of every gamma and policy are known before any of them is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ...core.cost import extra_token_cost, pass_cost
from ...core.drafting import Drafter, make_drafter
from ...core.engine import make_engine, make_state_engine
from ...core.paths import make_context
from ...core.protocols import DecodingPath, StateEngine
from ...core.sampling import probabilities
from ...core.states import EAGLE
from ...kinds import TOKEN, drafter_kind
from ...pairs.pair import Pair, context_length
from ...settings import Settings
from ...sides.early_exit import best_exit

if TYPE_CHECKING:
    from ...core.protocols import Engine

CHUNK = 64  # tokens whose logits are held at once


def is_predictable(settings: Settings, pair: Pair) -> bool:
    """Whether the rounds of these settings follow from a text. A sampled one needs the token rule,
    whose verdicts at different places are independent given the text, and a drafter whose q along
    the text is known. Of heads only those of EAGLE-3 read nothing but the target's states."""
    kind = drafter_kind(settings.drafter)
    if kind.predicted == "chained":
        return settings.greedy and (pair.head is None or pair.head.kind == EAGLE)
    if settings.greedy:
        return kind.predicted is not None
    return settings.rule == TOKEN and (kind.predicted == "place" or kind.certain)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A drafter's drafts along a known text, for one simulated run.

    chances: (length, count) -> the probabilities that the drafts of a round would be accepted, one
        after another. length: committed tokens when the round begins, which must not fall from
        call to call. count: the most that it may draft. Entry i is the probability that draft i + 1
        is kept, given that those before it were and that the text goes on as it does; 0 or 1 if
        greedy. There are as many entries as drafts.
    room: (length) -> how many tokens could be drafted after `length` committed ones.
    costs: c and the cost of a further token in a target pass, from sizes, which a policy reads.
    """

    chances: Callable[[int, int], list[float]]
    room: Callable[[int], int]
    costs: tuple[float, float]


def acceptance_along(
    pair: Pair, ids: Sequence[int], begin: int, settings: Settings
) -> Sequence[float] | None:
    """The probabilities that the tokens of a text, from place `begin` on, are drafted and accepted
    where they are judged, by the drafter of `settings`; None for drafters that copy or translate.

    ids: the whole text, of which the first `begin` tokens were the prompt. A token y that the
    target draws with probability p(y) is an accepted draft with probability min(1, q(y) / p(y)),
    whichever round judges it: of the mass p(y), the part min(p(y), q(y)) comes from drafts
    (Leviathan et al. 2022, arXiv 2211.17192, appendix A.1). Raises `PairError` if this pair cannot
    draft so.
    """
    kind = drafter_kind(settings.drafter)
    if kind.predicted != "place" or (kind.needs == "draft" and pair.shared is not None):
        return None
    with torch.inference_mode():
        layers = best_exit(pair.target, pair.vocab).layers if kind.needs == "layers" else None
        model = pair.draft_model if layers is None else pair.target
        engine = make_engine(model, pair.vocab)
        q = _probabilities_of(engine, ids, begin, settings, layers, context_length(model))
        if settings.greedy:  # the target's own distribution is one-hot at the text
            return q
        p = _probabilities_of(make_engine(pair.target, pair.vocab), ids, begin, settings)
        return [min(1.0, b / a) if a > 0 else 0.0 for a, b in zip(p, q, strict=True)]


class Along:
    """The drafts of `settings` along the text `ids`, for any number of simulated runs.

    begin: tokens of the prompt. known: what `acceptance_along` returned for this text.
    """

    def __init__(
        self,
        pair: Pair,
        ids: Sequence[int],
        begin: int,
        settings: Settings,
        known: Sequence[float] | None,
    ) -> None:
        self._pair, self._ids, self._begin, self._known = pair, ids, begin, known
        self._context = make_context(settings, pair.vocab, pair.device, None, "speculative")
        self._chains = drafter_kind(settings.drafter).predicted == "chained"
        make = make_state_engine if self._chains else make_engine
        self._path = make(pair.target, pair.vocab).path(self._context)
        self._first = self._drafter(self._path)
        form = self._path.engine.form
        c = self._first.step_cost() / pass_cost(pair.target, form)
        self._costs = c, extra_token_cost(pair.device, form)
        # Copied drafts are certain, and so are greedy ones: every run over the text is the same.
        self.certain = known is None or settings.greedy

    def run(self) -> Acceptance:
        """The drafts for one more run, which begins at the prompt's end."""
        if self._known is not None:
            return Acceptance(self._looked_up, self._first.room, self._costs)
        if not self._chains:
            drafter = self._drafter(self._path)
            return Acceptance(partial(_copied, drafter, self._ids), drafter.room, self._costs)
        engine = cast(StateEngine, self._path.engine)
        engine.rollback(0)
        engine.forward(_tensor(self._ids[:-1], engine), keep=1)
        read = _Read(engine.states)
        drafter = self._drafter(cast(DecodingPath, read))
        return Acceptance(_Chain(drafter, self._ids, read).chances, drafter.room, self._costs)

    def _looked_up(self, length: int, count: int) -> list[float]:
        """Of a drafter whose draft at a place depends on the text before it alone."""
        assert self._known is not None
        found = list(self._known[length - self._begin : length - self._begin + count])
        # Beyond the end of the text nobody knows what would follow, and nobody reads it.
        return found + [0.0] * (count - len(found))

    def _drafter(self, target: DecodingPath) -> Drafter:
        return make_drafter(self._pair, self._context, target)


def _copied(drafter: Drafter, ids: Sequence[int], length: int, count: int) -> list[float]:
    """Of a drafter whose certain drafts depend on where their round begins."""
    draft = drafter.draft(ids[:length], count)
    if draft is None:
        return []
    # The draft is certain, so where it is the text's own token it was surely accepted.
    follows = ids[length : length + count]
    return [
        float(place < len(follows) and token == follows[place])
        for place, token in enumerate(draft.ids.tolist())
    ]


class _Read:
    """Stands where a drafter looks for the target's path and its engine: hidden states of a text
    that was read once. states: those of the target's last pass, [n, states * width]."""

    def __init__(self, states: Tensor) -> None:
        self.whole = self.states = states
        self.engine = self

    def keep_states(self, layers: Sequence[int]) -> None:
        """They are kept already."""


class _Chain:
    """A drafter that begins at the target's states: it is given those of the tokens before the
    round, as if the rounds before had just been verified."""

    def __init__(self, drafter: Drafter, ids: Sequence[int], read: _Read) -> None:
        self._drafter, self._ids, self._read = drafter, ids, read
        self._received: int | None = None  # tokens whose states the drafter has

    def chances(self, length: int, count: int) -> list[float]:
        if count < 1:
            return []
        if self._received is None:
            self._read.states = self._read.whole[: length - 1]
            self._drafter.prefill(self._ids[: length - 1])
        else:
            self._read.states = self._read.whole[self._received :]
            self._drafter.rollback(length - 1)
        self._received = length - 1
        return _copied(self._drafter, self._ids, length, count)


def _probabilities_of(
    engine: Engine,
    ids: Sequence[int],
    begin: int,
    settings: Settings,
    layers: int | None = None,
    limit: int | None = None,
) -> list[float]:
    """The probability of each token of the text from `begin` on, given those before it; 0 past
    `limit`, the model's context, where it never drafts."""
    rows: list[float] = []
    last = min(len(ids) - 1, limit or len(ids))
    if 1 < begin <= last:
        engine.forward(_tensor(ids[: begin - 1], engine), keep=1, layers=layers)
    for start in range(begin - 1, last, CHUNK):
        fed = ids[start : min(start + CHUNK, last)]
        logits = engine.forward(_tensor(fed, engine), keep=len(fed), layers=layers)
        follows = _tensor(ids[start + 1 : start + 1 + len(fed)], engine).unsqueeze(-1)
        rows += probabilities(logits, settings).gather(-1, follows).squeeze(-1).tolist()
    return rows + [0.0] * (len(ids) - begin - len(rows))


def _tensor(ids: Sequence[int], engine: Engine) -> Tensor:
    return torch.tensor(list(ids), device=engine.device)
