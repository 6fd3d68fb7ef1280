"""Where two greedy lanes part: a tie within rounding, or a bug?

Passes over one and over several tokens round differently, so that a near-tie may fall either way;
a fault in a cache or a mask changes logits by far more. The place is scored again in several ways
that must agree within rounding, and how much rounding moves logits here is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core.engine import prefill
from ..core.engine_choice import make_engine
from ..core.events import Token, margin_of
from ..core.header import model_name
from ..core.model_facts import weights_form
from ..core.pair import Pair
from ..errors import PairError, TraceError
from ..result import speculate
from ..settings import Settings
from .parting import Difference, Parting, Scored

if TYPE_CHECKING:
    from ..core.protocols import Engine

NEAREST = 8  # likeliest tokens of a row whose logits are compared
PLACES = 8  # last places of the text at which rounding is measured
REACH = 48  # tokens before the place from which the control writes
# Units of the last place of the largest logit that rounding moves a gap by: at least, since a
# model writes its logits in its dtype, and at most. In fp32 the sums themselves round.
UNITS = {torch.float32: (4.0, 64.0)}
HALF_UNITS = (4.0, 8.0)
MOST_WIDTH = 16  # tokens of the pass over several


def examined(pair: Pair, parting: Parting) -> Iterator[str | Difference]:
    """Score the place again; yields a sentence before each step, and the answer at last. pair: that
    of the run, in the run's dtype. Raises `PairError` if it is another."""
    _check_pair(pair, parting)
    length = len(parting.prompt) + parting.index
    width = min(max(2, parting.gamma + 1), MOST_WIDTH, length)
    clean: dict[str, Tensor] = {}
    with torch.inference_mode():
        yield "Writing the baseline's text again, one token per pass."
        clean["one token per pass"] = _rows(pair, parting, [1] * len(parting.theirs))
        yield "Repeating the passes of the lane with drafts."
        repeated = _repeated(pair, parting)
        yield "Scoring the same text with fresh caches."
        clean["several tokens per pass"] = _rows(pair, parting, [width])
        clean["one pass"] = _rows(pair, parting, [length])
    yield "As a control, the target drafts for itself."
    yield _answer(pair, parting, clean, repeated, _control(pair, parting))


def _answer(
    pair: Pair, parting: Parting, clean: dict[str, Tensor], repeated: Tensor, judged: list[Token]
) -> Difference:
    """clean: rows of the last places by the way in which they were scored with fresh caches.
    repeated: the row of the place in the lane with drafts. judged: guesses of the control."""
    rounding, reasons = _rounding(list(clean.values()), pair)
    place = {name: rows[-1] for name, rows in clean.items()}
    ours, theirs = parting.ours[-1], parting.theirs[-1]
    behind = min(float(row.max() - torch.minimum(row[ours], row[theirs])) for row in place.values())
    if behind > rounding:
        reasons.append(
            f"with fresh caches the worse candidate is {behind:.2g} nats behind the first choice, "
            f"and rounding moves logits by at most {rounding:.2g}"
        )
    moved = _moved(repeated, place["one pass"])
    if moved > rounding:
        reasons.append(
            f"the passes of the lane with drafts, repeated, give logits that differ by {moved:.2g} "
            "nats from fresh ones"
        )
    margins = [margin_of(token) for token in judged if token.outcome == "rejected"]
    if wrong := sum(margin is None or margin > rounding for margin in margins):
        reasons.append(f"the target refused {wrong} of its own guesses by a clear margin")
    scored = []
    for name, row in {"the lane with drafts, repeated": repeated, **place}.items():
        p_ours, p_theirs = torch.softmax(row, -1)[[ours, theirs]].tolist()
        scored.append(Scored(name, p_ours, p_theirs, float(row[theirs] - row[ours])))
    return Difference(
        index=parting.index,
        ours=str(pair.tokenizer.decode([ours])),
        theirs=str(pair.tokenizer.decode([theirs])),
        scored=tuple(scored),
        rounding=rounding,
        behind=behind,
        held=len(judged) - len(margins),
        judged=len(judged),
        reasons=tuple(reasons),
    )


def _check_pair(pair: Pair, parting: Parting) -> None:
    """Raise `PairError` if a run was not made with this pair in this dtype, and `TraceError` if
    its ids cannot be fed."""
    name, dtype = model_name(pair.target), weights_form(pair.target)
    if name != parting.target:
        raise PairError(f"the run was made with {parting.target}, not {name}: name its pair.")
    if dtype != parting.dtype:
        raise PairError(
            f"the run was made in {parting.dtype}, and the pair is loaded in {dtype}: load it "
            "with the dtype of the run."
        )
    fed = [*parting.prompt, *parting.theirs, *chain(*chain(*parting.passes))]
    unknown = any(not 0 <= token_id < pair.vocab for token_id in fed)
    if unknown or not parting.prompt or len(parting.ours) < len(parting.theirs):
        raise TraceError("the run holds tokens that this pair does not have: name its pair.")


def _rows(pair: Pair, parting: Parting, widths: Sequence[int]) -> Tensor:
    """Rows of the last places, [.., vocab], from passes over so many tokens each at the end of the
    baseline's text, after one over all before them; no cache is rolled back."""
    engine = make_engine(pair.target, pair.vocab)
    unread = [*parting.prompt, *parting.theirs[:-1]]
    first = len(unread) - sum(widths)
    prefill(engine, unread[:first])
    unread = unread[first:]
    rows: list[Tensor] = []
    for width in widths:
        rows += _forward(engine, unread[:width], min(width, MOST_WIDTH))
        unread = unread[width:]
    return torch.stack(rows[-min(PLACES, len(parting.theirs)) :])


def _repeated(pair: Pair, parting: Parting) -> Tensor:
    """The row of the place, [vocab], from the passes and rollbacks of the lane with drafts."""
    engine = make_engine(pair.target, pair.vocab)
    prefill(engine, parting.prompt[:-1])
    last, length = parting.prompt[-1], len(parting.prompt)
    *earlier, (drafted, _) = parting.passes
    for guesses, emitted in earlier:
        _forward(engine, [last, *guesses], 1)
        last, length = emitted[-1], length + len(emitted)
        engine.rollback(length - 1)
    rows = _forward(engine, [last, *drafted], len(drafted) + 1)
    return rows[parting.index - (length - len(parting.prompt))]


def _forward(engine: Engine, ids: Sequence[int], keep: int) -> Tensor:
    rows = engine.forward(torch.tensor(ids, device=engine.device), keep=keep)
    return rows.double().cpu()


def _rounding(ways: Sequence[Tensor], pair: Pair) -> tuple[float, list[str]]:
    """How far rounding moves two logits apart, at most, and what it cannot explain.

    Twice what is seen between ways of scoring that use no rollback, and no more than the dtype of
    the weights allows: a fault in passes over several tokens must not count as rounding.
    """
    seen = max(
        _moved(one, other)
        for i, a in enumerate(ways)
        for b in ways[:i]
        for one, other in zip(reversed(a), reversed(b), strict=False)
    )
    # Compiled passes are fp32 whatever their weights.
    dtype, form = pair.target.dtype, make_engine(pair.target, pair.vocab).form
    if form == "compiled" or not dtype.is_floating_point:
        dtype = torch.float32
    least, most = UNITS.get(dtype, HALF_UNITS)
    unit = torch.finfo(dtype).eps * max(float(rows.amax(-1).abs().max()) for rows in ways)
    if seen <= most * unit:
        return min(max(2 * seen, least * unit), most * unit), []
    return most * unit, [
        f"passes over one token and over several differ by {seen:.2g} nats, and rounding in "
        f"{str(dtype).removeprefix('torch.')} explains at most {most * unit:.2g}"
    ]


def _moved(one: Tensor, other: Tensor) -> float:
    """How far two rows [vocab] move the gap between any two of the likeliest tokens, in nats."""
    likely = torch.cat([row.topk(min(NEAREST, len(row))).indices for row in (one, other)])
    change = (one - other)[likely]
    return float(change.max() - change.min())


def _control(pair: Pair, parting: Parting) -> list[Token]:
    """The target drafting for itself around the place: its guesses that were judged."""
    text = [*parting.prompt, *parting.theirs]
    gamma = max(1, min(parting.gamma, MOST_WIDTH - 1))
    settings = Settings(gamma=gamma, max_new_tokens=REACH, ignore_eos=True)
    alone = replace(pair, draft=pair.target, draft_tokenizer=None)
    rounds = speculate(alone, text[:-REACH] or text[:1], settings)
    return [t for r in rounds for t in r.drafted if t.outcome in ("accepted", "rejected")]
