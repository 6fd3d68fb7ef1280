"""transformers' `generate()`, with and without an assistant model, timed as a user would run it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...core.engine import now
from ...pairs.pair import Pair
from ...settings import Settings

# transformers' defaults: with other values it warns that greedy decoding ignores them.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}


def generate_seconds(
    pair: Pair, prompt_ids: Sequence[int], settings: Settings, *, assisted: bool
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, including the prompt, and the ids that it emitted.

    It emits `max_new_tokens` tokens, even after an end of text. assisted: use the draft as the
    assistant, with a constant `settings.gamma` tokens per round, whatever the draft's confidence.
    """
    ids = torch.tensor([list(prompt_ids)], device=pair.target.device)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    config = _generation_config(pair.target, settings)
    torch.manual_seed(settings.seed)
    with _constant_drafts(pair.draft if assisted else None, settings.gamma) as assistant:
        if assistant is not None:
            options["assistant_model"] = assistant
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
    if settings.greedy:
        config.update(**NEUTRAL)
    else:
        config.update(temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p)
    return config


@contextmanager
def _constant_drafts(draft: Any, gamma: int) -> Iterator[Any]:
    """`draft`, if any, set to draft `gamma` tokens per round; its own config is restored after."""
    if draft is None:
        yield None
        return
    own = draft.generation_config
    draft.generation_config = copy.deepcopy(own)
    draft.generation_config.update(
        num_assistant_tokens=gamma,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
        eos_token_id=None,
    )
    try:
        yield draft
    finally:
        draft.generation_config = own
