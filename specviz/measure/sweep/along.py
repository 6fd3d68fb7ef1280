"""The rounds that a configuration would run along a text that is already known, without running it.

One run gives the text. A drafter's view of every place of it follows without a further run: a
model reads the whole text in one pass, and drafts that are copied from the text are looked up
again. So the rounds of every gamma and policy are known before any of them is measured.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from ...core.cost import extra_token_cost, pass_cost
from ...core.drafting import make_drafter
from ...core.engine_choice import make_engine, make_state_engine
from ...core.model_facts import context_length
from ...core.pair import Pair
from ...core.paths import make_context
from ...core.policy import make_policy
from ...core.protocols import DecodingPath, Engine, StateEngine
from ...core.registry import drafter_kind
from ...core.sampling import probabilities
from ...core.states import EAGLE
from ...runs.metrics import ratio
from ...runs.trace import Trace
from ...settings import TOKEN, Settings
from ...sides.early_exit.drafter import best_exit

CHUNK = 64  # tokens whose logits are held at once
DRAWS = 32  # simulated runs of a text that was sampled; a greedy one needs one run

Rounds: TypeAlias = Counter[tuple[int, int, int, int]]
"""How many rounds had so many drafted, judged, accepted and emitted tokens; they can be added."""


def rounds_of(trace: Trace) -> Rounds:
    """Those of the speculative lane of a race."""
    return Counter(
        (
            len(r.drafted),
            sum(token.outcome != "ignored" for token in r.drafted),
            sum(token.outcome == "accepted" for token in r.drafted),
            len(r.emitted),
        )
        for r in trace.lane("speculative")
    )


def figures(rounds: Rounds) -> dict[str, Any]:
    """The fields of `RoundFigures`."""
    drafted, judged, accepted, emitted = (
        sum(one[i] * count for one, count in rounds.items()) for i in range(4)
    )

    def reaching(place: int, i: int) -> int:
        return sum(count for one, count in rounds.items() if one[i] > place)

    places = range(max((one[0] for one in rounds), default=0))
    return {
        "tau": ratio(emitted, rounds.total()),
        "alpha": ratio(accepted, judged),
        "alpha_by_position": tuple(ratio(reaching(at, 2), reaching(at, 1)) for at in places),
        "efficiency": ratio(accepted, drafted),
        "drafted": drafted / max(1, rounds.total()),
    }


@dataclass(frozen=True, slots=True)
class KnownText:
    """A text that the target wrote. ids: the prompt, of `begin` tokens, and what followed. budget:
    most tokens that may be committed. limit: the target's context."""

    ids: tuple[int, ...]
    begin: int
    budget: int
    limit: int | None


def known_text(pair: Pair, trace: Trace) -> KnownText:
    """The text that the speculative lane of a race wrote."""
    header, begin = trace.header, len(trace.header.prompt_ids)
    written = (token.id for r in trace.lane("speculative") for token in r.emitted)
    ids = (*header.prompt_ids, *written)
    is_whole = trace.end is not None and trace.end.reasons["speculative"] != "stopped"
    # A run that was stopped is read as one whose budget was what it wrote.
    budget = begin + header.settings.max_new_tokens if is_whole else len(ids)
    return KnownText(ids, begin, budget, context_length(pair.target))


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


def acceptance_along(pair: Pair, text: KnownText, settings: Settings) -> Sequence[float] | None:
    """The probabilities that the tokens of a text, after its prompt, are drafted and accepted where
    they are judged, by the drafter of `settings`; None for drafters that copy or translate.

    A token y that the target draws with probability p(y) is an accepted draft with probability
    min(1, q(y) / p(y)), whichever round judges it: of the mass p(y), the part min(p(y), q(y)) comes
    from drafts (Leviathan et al. 2022, arXiv 2211.17192, appendix A.1). Raises `PairError` if this
    pair cannot draft so.
    """
    kind = drafter_kind(settings.drafter)
    if kind.predicted != "place" or (kind.needs == "draft" and pair.shared is not None):
        return None
    with torch.inference_mode():
        layers = best_exit(pair.target, pair.vocab).layers if kind.needs == "layers" else None
        model = pair.draft_model if layers is None else pair.target
        q = _probabilities_of(pair, model, text, settings, layers)
        if settings.greedy:  # the target's own distribution is one-hot at the text
            return q
        p = _probabilities_of(pair, pair.target, text, settings)
        return [min(1.0, b / a) if a > 0 else 0.0 for a, b in zip(p, q, strict=True)]


def predicted_rounds(
    pair: Pair, text: KnownText, settings: Settings, known: Sequence[float] | None
) -> Rounds:
    """The rounds of a run that writes this text: exactly if its drafts are certain, else of `DRAWS`
    runs together. known: what `acceptance_along` returned for this text."""
    drafts, draws = DraftsAlong(pair, text, settings, known), random.Random(0)  # nosec B311
    runs = 1 if known is None or settings.greedy else DRAWS
    return Counter(one for _ in range(runs) for one in simulated_rounds(drafts, settings, draws))


def simulated_rounds(
    drafts: DraftsAlong, settings: Settings, draws: random.Random
) -> Iterator[tuple[int, int, int, int]]:
    """Drafted, judged, accepted and emitted tokens of each round of a run that writes the text.

    It is the loop of `core.loop` with the verdicts drawn from the drafts' chances; they are certain
    if the text is greedy.
    """
    text = drafts.text
    policy = make_policy(settings, lambda: drafts.costs)
    length, end = text.begin, len(text.ids)
    while length < end:
        room = min(text.budget - length - 1, drafts.room(length), policy.gamma)
        if text.limit is not None:
            room = min(room, text.limit - length)
        chances = drafts.chances(length, room) if room > 0 else []
        fails = (i for i, one in enumerate(chances) if one < 1.0 and draws.random() >= one)
        kept, left = next(fails, len(chances)), end - length
        policy.observe(len(chances), kept)
        if kept >= left:  # the text ends within the accepted drafts
            yield len(chances), left, left, left
            return
        yield len(chances), min(kept + 1, len(chances)), kept, kept + 1
        length += kept + 1


class DraftsAlong:
    """The drafts of `settings` along a text.

    known: what `acceptance_along` returned for this text. room: (length) -> how many tokens could
    be drafted after `length` committed ones. costs: c and the cost of a further token in a target
    pass, from sizes, which a policy reads.
    """

    def __init__(
        self, pair: Pair, text: KnownText, settings: Settings, known: Sequence[float] | None
    ) -> None:
        self.text, self._known = text, known
        context = make_context(settings, pair.vocab, pair.device, None, "speculative")
        is_chained = drafter_kind(settings.drafter).predicted == "chained"
        engine = (make_state_engine if is_chained else make_engine)(pair.target, pair.vocab)
        self._states = _States(cast(StateEngine, engine), text.ids) if is_chained else None
        path = self._states or engine.path(context)
        self._drafter = make_drafter(pair, context, cast(DecodingPath, path))
        self.room = self._drafter.room
        c = self._drafter.step_cost() / pass_cost(pair.target, engine.form)
        self.costs = c, extra_token_cost(pair.device, engine.form)

    def chances(self, length: int, count: int) -> list[float]:
        """The probabilities that the drafts of a round would be accepted, one after another: entry
        i that draft i + 1 is kept, given that those before it were and that the text goes on as it
        does. There are as many entries as drafts.

        length: committed tokens when the round begins, which must not fall from call to call
        unless all is `known`. count: the most that it may draft.
        """
        ids = self.text.ids
        if self._known is not None:  # its draft at a place depends on the text before it alone
            begin = length - self.text.begin
            found = list(self._known[begin : begin + count])
            # Beyond the end of the text nobody knows what would follow, and nobody reads it.
            return found + [0.0] * (count - len(found))
        if self._states is not None and self._states.give(length - 1):
            self._drafter.prefill(ids[: length - 1])
        elif self._states is not None:
            self._drafter.rollback(length - 1)
        draft = self._drafter.draft(ids[:length], count)
        # The draft is certain, so where it is the text's own token it was surely accepted.
        drafted = [] if draft is None else draft.ids.tolist()
        follows = [*ids[length : length + len(drafted)], *[None] * len(drafted)]
        return [float(token == own) for token, own in zip(drafted, follows, strict=False)]


class _States:
    """Stands where a drafter looks for the target's path and its engine: the hidden states of a
    text that is read once, of which those of the tokens before a round are given."""

    def __init__(self, reader: StateEngine, ids: Sequence[int]) -> None:
        self.engine, self._reader = self, reader
        self._ids, self._given = ids, 0

    def keep_states(self, layers: Sequence[int]) -> None:
        """Read the text; states are kept after so many layers."""
        self._reader.keep_states(layers)
        self._reader.forward(_tensor(self._ids[:-1], self._reader), keep=1)
        self._whole = self.states = self._reader.states  # [tokens, states * width]

    def give(self, length: int) -> bool:
        """Show the states of the tokens that were not given before, as the last pass of the target
        would; returns whether they are the prompt's."""
        is_first = not self._given
        self.states = self._whole[:length] if is_first else self._whole[self._given :]
        self._given = length
        return is_first


def _probabilities_of(
    pair: Pair, model: Any, text: KnownText, settings: Settings, layers: int | None = None
) -> list[float]:
    """The probability of each token of the text after its prompt, given those before it; 0 past the
    model's context, where it never drafts."""
    ids, begin = text.ids, text.begin
    engine = make_engine(model, pair.vocab)
    rows: list[float] = []
    last = min(len(ids) - 1, context_length(model) or len(ids))
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
