"""Check that drafters and verdicts of other packages keep their promises.

Ours are not wrapped, so the checks cost them nothing. A fault becomes one sentence that names the
kind and its package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from ..base.errors import KindError, SpecvizError
from .drafter import Drafter
from .records import DrafterKind, VerdictKind
from .types import Draft, JudgedRound, RunContext

if TYPE_CHECKING:
    from .protocols import DecodingPath

ROUNDING = 1e-3  # how far the sum of a row may be from 1


def _name(kind: DrafterKind | VerdictKind) -> str:
    """The words for a kind in an error sentence."""
    role = "drafter" if isinstance(kind, DrafterKind) else "verdict"
    return f"the {role} {kind.name!r} of {kind.package}"


def _called(
    kind: DrafterKind | VerdictKind, task: str, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call a function of a kind and return its result. task: its name in the error sentence."""
    try:
        return function(*arguments)
    except SpecvizError:
        raise
    except Exception as error:
        raise KindError(
            f"{_name(kind)} failed in {task} ({type(error).__name__}: {error}): fix it, or choose "
            "another one."
        ) from error


class CheckedDrafter(Drafter):
    """A drafter of another package. Raises `KindError` where it breaks its promises."""

    def __init__(
        self, kind: DrafterKind, pair: Any, run: RunContext, target_path: DecodingPath
    ) -> None:
        self._kind = kind
        self._run = run
        self._drafter = _called(kind, "make", kind.make, pair, run, target_path)
        if not isinstance(self._drafter, Drafter):
            raise KindError(
                f"{_name(kind)} returned a {type(self._drafter).__name__}: return a "
                "specviz.Drafter."
            )
        self.engine_name = self._drafter.engine_name
        self.layers = self._drafter.layers

    def prefill(self, ids: Sequence[int]) -> float:
        return float(_called(self._kind, "prefill", self._drafter.prefill, ids))

    def room(self, length: int) -> int:
        return int(_called(self._kind, "room", self._drafter.room, length))

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._drafter.min_confidence = self.min_confidence
        # A copy: the committed ids are the loop's own.
        draft: Draft | None = _called(self._kind, "draft", self._drafter.draft, list(ids), count)
        if draft is None:
            return None
        fault = fault_of(draft, count, self._run.vocab)
        if fault is not None:
            raise KindError(f"{_name(self._kind)} {fault}.")
        return replace(draft, ids=draft.ids.to(self._run.device), q=draft.q.to(self._run.device))

    def rollback(self, length: int) -> None:
        _called(self._kind, "rollback", self._drafter.rollback, length)

    def step_cost(self) -> float:
        return float(_called(self._kind, "step_cost", self._drafter.step_cost))


def fault_of(draft: object, count: int, vocab: int) -> str | None:
    """The fault of a draft of at most `count` tokens, as the end of a sentence; None for none."""
    if not _is_of_tensors(draft):
        return f"returned a {type(draft).__name__}: return a specviz.Draft of tensors, or None"
    return _shape_fault(draft.ids, draft.q, count, vocab) or _value_fault(draft.ids, draft.q, vocab)


def _shape_fault(ids: Tensor, q: Tensor, count: int, vocab: int) -> str | None:
    """The fault in the dtypes and shapes of a draft, as `fault_of` returns it."""
    if ids.dtype != torch.int64 or ids.dim() != 1 or not len(ids):
        return "returned invalid ids: return an int64 tensor [n] of one or more"
    if len(ids) > count:
        return f"drafted {len(ids)} tokens, and at most {count} were requested: draft fewer"
    if q.dtype != torch.float32 or q.shape != (len(ids), vocab):
        dtype = str(q.dtype).removeprefix("torch.")
        return f"returned q as {dtype} {list(q.shape)}: return float32 [{len(ids)}, {vocab}]"
    return None


def _value_fault(ids: Tensor, q: Tensor, vocab: int) -> str | None:
    """The fault in the numbers of a draft, as `fault_of` returns it."""
    if int(ids.min()) < 0 or int(ids.max()) >= vocab:
        return f"drafted an id outside the vocabulary: use 0 to {vocab - 1}"
    if not bool(torch.isfinite(q).all()) or float(q.min()) < 0:
        return "returned a q with negative or non-finite numbers: return probabilities"
    sums = q.sum(-1, dtype=torch.float64)
    errors = (sums - 1).abs()
    if float(errors.max()) > ROUNDING:
        worst = float(sums[errors.argmax()])
        return f"returned a row of q that sums to {worst:.4g}: make each row sum to 1"
    drafted_q = q.gather(-1, ids.unsqueeze(-1))
    if float(drafted_q.min()) == 0:
        return "drafted a token whose q is 0: return the q that it was drawn from"
    return None


def _is_of_tensors(draft: object) -> TypeGuard[Draft]:
    if not isinstance(draft, Draft):
        return False
    return isinstance(draft.ids, Tensor) and isinstance(draft.q, Tensor)


_checked_rules: dict[int, Callable[..., Tensor]] = {}
"""Wrapped rules by the ids of their kinds: a rule may be a callable object without a hash."""


def checked_rule(kind: VerdictKind) -> Callable[..., Tensor]:
    """The wrapped rule of another package, the same one for each call with this kind: captured
    graphs are found again by their rule."""
    if id(kind) not in _checked_rules:
        _checked_rules[id(kind)] = _wrapped(kind)  # it keeps the kind, so the id stays unique
    return _checked_rules[id(kind)]


def _wrapped(kind: VerdictKind) -> Callable[..., Tensor]:
    """Wrap the rule of another package: raise `KindError` if it fails, or if its result has another
    dtype or shape.

    The rule may run inside a captured graph, where the host cannot read its two numbers:
    `check_verdict` checks these once a path has read them.
    """
    rule = kind.decide

    def decide_and_check(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: Any) -> Tensor:
        # Copies: the rule may write to what it gets.
        copies = p.clone(), q.clone(), drafted.clone()
        decision = _called(kind, "decide", rule, *copies, u, source)
        if not _is_decision(decision):
            raise KindError(
                f"{_name(kind)} did not return an int64 tensor [accepted, next id]: return one."
            )
        return decision

    return decide_and_check


def check_verdict(kind: VerdictKind, judged: JudgedRound) -> None:
    """Raise `KindError` if the rule of another package decided what no rule can."""
    accepted, next_id, _ = judged.verdict
    drafted = len(judged.ids)
    vocab = judged.p.shape[-1]
    if not 0 <= accepted <= drafted:
        raise KindError(
            f"{_name(kind)} accepted {accepted} of {drafted} drafts: use 0 to {drafted}."
        )
    if not 0 <= next_id < vocab:
        raise KindError(f"{_name(kind)} returned the id {next_id}: use 0 to {vocab - 1}.")


def _is_decision(value: object) -> TypeGuard[Tensor]:
    """Whether a rule's result is valid: int64 [2]."""
    return isinstance(value, Tensor) and value.dtype == torch.int64 and value.shape == (2,)
