"""Copies of a pair in another dtype, for comparisons with transformers' own modules."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from ...core.pair import Pair


def in_fp32(pair: Pair) -> Pair:
    """Convert models with other weights than fp32 to copies in fp32, in which the lanes compute on
    a processor; on other devices the pair stays as it is."""
    if pair.device.type != "cpu":
        return pair
    target = _converted(pair.target, torch.float32)
    draft = _converted(pair.draft, torch.float32)
    return replace(pair, target=target, draft=draft)


def in_one_dtype(pair: Pair) -> Pair:
    """Convert each model to its own dtype throughout, as transformers' own modules need it: where
    matrices were unpacked to 16 bits, norms are in fp32."""
    return replace(pair, target=_converted(pair.target), draft=_converted(pair.draft))


def _converted(model: Any, dtype: torch.dtype | None = None) -> Any:
    """The model, or a copy of it in `dtype`, by default its own, if it has weights of others. The
    draft may be None, and stays so."""
    if model is None:
        return None
    dtype = dtype or model.dtype
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    if all(weight.dtype == dtype for weight in weights):
        return model
    return copy.deepcopy(model).to(dtype)
