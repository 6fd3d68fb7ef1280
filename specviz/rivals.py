"""transformers' own `generate()`, alone and assisted, timed as a user would run it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from .engine import now
from .pair import Pair
from .settings import Settings


def generate_seconds(
    pair: Pair, prompt_ids: Sequence[int], settings: Settings, *, assisted: bool
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, prompt included, and the ids that it emitted.

    Emits `max_new_tokens`, whatever the end of text. Assisted, it drafts a constant
    `settings.gamma` tokens per round, with no early stop on the draft's confidence.
    """
    ids = torch.tensor([list(prompt_ids)], device=pair.target.device)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    if assisted:
        options["assistant_model"] = _constant_assistant(pair.draft, settings.gamma)
    torch.manual_seed(settings.seed)
    config = _generation_config(pair.target, settings)
    start = now(pair.device)
    with torch.inference_mode():
        output = pair.target.generate(ids, generation_config=config, **options)
    seconds = now(pair.device) - start
    return seconds, output[0, ids.shape[1] :].tolist()


def _generation_config(model: Any, settings: Settings) -> Any:
    config = copy.deepcopy(model.generation_config)
    config.update(
        max_new_tokens=settings.max_new_tokens,
        do_sample=not settings.greedy,
        eos_token_id=None,
        pad_token_id=0,
    )
    if not settings.greedy:
        config.update(temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p)
    return config


def _constant_assistant(draft: Any, gamma: int) -> Any:
    config = draft.generation_config
    config.num_assistant_tokens = gamma
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    config.eos_token_id = None
    return draft
