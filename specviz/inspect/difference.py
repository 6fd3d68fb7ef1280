"""Decide why two greedy lanes diverge: a tie within rounding, or a bug?

Passes over one and over several tokens round differently, so that a near-tie may fall either way;
a fault in a cache or a mask changes logits by far more. The position is scored again in several
ways that must agree within rounding, and how much rounding moves logits here is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..base.errors import PairError, TraceError
from ..core.engine import prefill
from ..core.engine_choice import make_engine
from ..core.events import Token, margin_of
from ..core.header import model_name
from ..core.model_facts import weights_form
from ..core.pair import Pair
from ..core.products import arithmetic_in_words
from ..core.settings import Settings
from ..runs.result import speculate
from .parting import Difference, Parting, Scored

if TYPE_CHECKING:
    from ..core.protocols import Engine

NEAREST = 8  # likeliest tokens whose logits are compared
POSITIONS = 8  # last ones of the text at which rounding is measured
REACH = 48  # tokens before the difference from which the control writes
# Units of the last place of the largest logit that rounding moves a gap by: at least, since a
# model writes its logits in its dtype, and at most. In fp32 the sums themselves round.
UNITS = {torch.float32: (4.0, 64.0)}
HALF_UNITS = (4.0, 8.0)
MAX_WIDTH = 16  # tokens of the pass over several
REPEATED = "the lane with drafts, repeated"
ONE_PASS = "one pass"


def examined(pair: Pair, parting: Parting) -> Iterator[str | Difference]:
    """Score the position again; yields a sentence before each step, and at last the `Difference`.
    pair: the run's pair in the run's dtype. Raises `PairError` if it is another.
    """
    _check_pair(pair, parting)
    length = len(parting.prompt) + parting.index
    width = min(max(2, parting.gamma + 1), MAX_WIDTH, length)
    with torch.inference_mode():
        yield "Repeating the baseline's text, one token per pass."
        one_by_one = _fresh_logits(pair, parting, [1] * len(parting.baseline))
        yield "Repeating the passes of the lane with drafts."
        repeated = _repeated_logits(pair, parting)
        yield "Scoring the same text with fresh caches."
        several = _fresh_logits(pair, parting, [width])
        in_one_pass = _fresh_logits(pair, parting, [length])
    yield "As a control, the target drafts for itself."
    judged = _control(pair, parting)
    fresh = {
        "one token per pass": one_by_one,
        "several tokens per pass": several,
        ONE_PASS: in_one_pass,
    }
    yield _difference(pair, parting, fresh, repeated, judged)


def _difference(
    pair: Pair,
    parting: Parting,
    fresh: Mapping[str, Tensor],
    repeated: Tensor,
    judged: Sequence[Token],
) -> Difference:
    """Build the `Difference`.

    fresh: logits [positions, vocab] of the last positions, by the way of scoring with fresh caches.
    repeated: logits [vocab] of the difference in the lane with drafts.
    judged: guesses of the control.
    """
    rounding, reasons = _rounding(list(fresh.values()), pair)
    speculative = parting.speculative[-1]
    baseline = parting.baseline[-1]
    logits_by_scoring = {REPEATED: repeated}
    for scoring, logits in fresh.items():
        logits_by_scoring[scoring] = logits[-1]

    behind = min(_behind(logits[-1], speculative, baseline) for logits in fresh.values())
    if behind > rounding:
        reasons.append(
            f"with fresh caches the worse candidate is {behind:.2g} nats behind the first choice, "
            f"and rounding explains at most {rounding:.2g}"
        )
    moved = _moved(repeated, logits_by_scoring[ONE_PASS])
    if moved > rounding:
        reasons.append(
            "the repeated passes of the lane with drafts give logits that differ from fresh ones "
            f"by {moved:.2g} nats"
        )
    rejected = [token for token in judged if token.outcome == "rejected"]
    wrong = sum(not _is_near_tie(token, rounding) for token in rejected)
    if wrong:
        reasons.append(f"the target rejected {wrong} of its own guesses by a clear margin")

    scored = [
        _scored(scoring, logits, speculative, baseline)
        for scoring, logits in logits_by_scoring.items()
    ]
    return Difference(
        index=parting.index,
        speculative=str(pair.tokenizer.decode([speculative])),
        baseline=str(pair.tokenizer.decode([baseline])),
        scored=tuple(scored),
        rounding=rounding,
        behind=behind,
        held=len(judged) - len(rejected),
        judged=len(judged),
        reasons=tuple(reasons),
    )


def _behind(logits: Tensor, speculative: int, baseline: int) -> float:
    """The distance of the worse candidate from the first choice, in nats."""
    worse = torch.minimum(logits[speculative], logits[baseline])
    return float(logits.max() - worse)


def _is_near_tie(token: Token, rounding: float) -> bool:
    margin = margin_of(token)
    return margin is not None and margin <= rounding


def _scored(name: str, logits: Tensor, speculative: int, baseline: int) -> Scored:
    probabilities = torch.softmax(logits, -1)
    return Scored(
        name=name,
        p_speculative=float(probabilities[speculative]),
        p_baseline=float(probabilities[baseline]),
        apart=float(logits[baseline] - logits[speculative]),
    )


def _check_pair(pair: Pair, parting: Parting) -> None:
    """Raise `PairError` if a run was not made with this pair in this dtype, and `TraceError` if
    its ids cannot be fed."""
    name = model_name(pair.target)
    if name != parting.target:
        raise PairError(f"the run was made with {parting.target}, not {name}: name the run's pair.")
    products = getattr(pair.target, "products", None)
    dtype = arithmetic_in_words(weights_form(pair.target), products)
    if dtype != parting.dtype:
        raise PairError(
            f"the run was made in {parting.dtype}, and the pair is loaded in {dtype}: load the "
            "pair with the run's dtype and products."
        )
    fed = [*parting.prompt, *parting.baseline]
    for target_pass in parting.passes:
        fed += [*target_pass.drafted, *target_pass.emitted]
    has_unknown = any(not 0 <= token_id < pair.vocab for token_id in fed)
    is_cut_off = len(parting.speculative) < len(parting.baseline)
    if has_unknown or is_cut_off or not parting.prompt:
        raise TraceError("the run has tokens that this pair does not have: name the run's pair.")


def _fresh_logits(pair: Pair, parting: Parting, widths: Sequence[int]) -> Tensor:
    """Logits [positions, vocab] of the last positions of the baseline's text. One pass reads all
    earlier tokens, then each pass reads one of `widths` tokens; no cache is rolled back."""
    engine = make_engine(pair.target, pair.vocab)
    ids = [*parting.prompt, *parting.baseline[:-1]]
    begin = len(ids) - sum(widths)
    prefill(engine, ids[:begin])
    rows: list[Tensor] = []
    for width in widths:
        end = begin + width
        rows += _forward(engine, ids[begin:end], min(width, MAX_WIDTH))
        begin = end
    count = min(POSITIONS, len(parting.baseline))
    return torch.stack(rows[-count:])


def _repeated_logits(pair: Pair, parting: Parting) -> Tensor:
    """Logits [vocab] of the difference, from the passes and rollbacks of the lane with drafts."""
    engine = make_engine(pair.target, pair.vocab)
    prefill(engine, parting.prompt[:-1])
    last_id = parting.prompt[-1]
    length = len(parting.prompt)
    *earlier, final = parting.passes
    for target_pass in earlier:
        _forward(engine, [last_id, *target_pass.drafted], 1)
        last_id = target_pass.emitted[-1]
        length += len(target_pass.emitted)
        engine.rollback(length - 1)
    logits = _forward(engine, [last_id, *final.drafted], len(final.drafted) + 1)
    emitted = length - len(parting.prompt)  # before the final pass
    return logits[parting.index - emitted]


def _forward(engine: Engine, ids: Sequence[int], keep: int) -> Tensor:
    """Logits [keep, vocab] of the last of these tokens, in double precision."""
    feed = torch.tensor(ids, device=engine.device)
    logits = engine.forward(feed, keep=keep)
    return logits.double().cpu()


def _rounding(scorings: Sequence[Tensor], pair: Pair) -> tuple[float, list[str]]:
    """The most that rounding can move two logits apart, and the reasons against rounding.

    Twice the largest difference between ways of scoring that use no rollback, and no more than the
    dtype of the weights allows: a fault in passes over several tokens must not count as rounding.

    scorings: logits [positions, vocab], which all end at the difference.
    """
    observed = 0.0
    for first, second in combinations(scorings, 2):
        from_the_end = zip(reversed(first), reversed(second), strict=False)
        for first_logits, second_logits in from_the_end:
            observed = max(observed, _moved(first_logits, second_logits))
    dtype = _dtype_of_passes(pair)
    largest_logit = max(float(logits.amax(-1).abs().max()) for logits in scorings)
    unit = torch.finfo(dtype).eps * largest_logit
    min_units, max_units = UNITS.get(dtype, HALF_UNITS)
    limit = max_units * unit
    if observed > limit:
        name = str(dtype).removeprefix("torch.")
        reason = (
            f"passes over one token and passes over several differ by {observed:.2g} nats, and "
            f"rounding in {name} explains at most {limit:.2g}"
        )
        return limit, [reason]
    rounding = max(2 * observed, min_units * unit)
    return min(rounding, limit), []


def _dtype_of_passes(pair: Pair) -> torch.dtype:
    """The dtype in which the target computes: compiled passes use fp32 whatever their weights."""
    dtype: torch.dtype = pair.target.dtype
    engine = make_engine(pair.target, pair.vocab)
    if engine.name == "compiled" or not dtype.is_floating_point:
        return torch.float32
    return dtype


def _moved(logits: Tensor, other: Tensor) -> float:
    """The largest change, in nats, of the gap between two of the likeliest tokens, from one way of
    scoring to another, each [vocab]."""
    likely = torch.cat([_likeliest(logits), _likeliest(other)])
    change = (logits - other)[likely]
    return float(change.max() - change.min())


def _likeliest(logits: Tensor) -> Tensor:
    return logits.topk(min(NEAREST, len(logits))).indices


def _control(pair: Pair, parting: Parting) -> list[Token]:
    """Let the target draft for itself around the difference, and return its judged guesses."""
    text = [*parting.prompt, *parting.baseline]
    gamma = max(1, min(parting.gamma, MAX_WIDTH - 1))
    settings = Settings(gamma=gamma, max_new_tokens=REACH, ignore_eos=True)
    self_drafting = replace(pair, draft=pair.target, draft_tokenizer=None)
    prompt = text[:-REACH] or text[:1]
    judged: list[Token] = []
    for r in speculate(self_drafting, prompt, settings):
        judged += [token for token in r.drafted if token.outcome in ("accepted", "rejected")]
    return judged
