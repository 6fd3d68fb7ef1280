"""The writers of texts that bench compares with the lanes: transformers' `generate()`, alone,
with the draft as its assistant or with prompt lookup, and the speculative lane on the same
modules."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from ...core.clock import now
from ...core.eager import EagerEngine
from ...core.engine_choice import eager_only, make_engine
from ...core.lanes import BASELINE, LANE_LABELS, SPECULATIVE
from ...core.messages import TextPrompt
from ...core.pair import Pair
from ...core.registry import drafter_kind
from ...core.settings import Settings
from ...runs.result import generate
from ..samples import Variant, Writer, Written
from .dtypes import in_fp32, in_one_dtype

GENERATE = "generate()"
ASSISTED = "generate(assistant)"
LOOKUP = "generate(prompt lookup)"
PLAIN = f"{LANE_LABELS[SPECULATIVE]}, plain"  # on the same modules that generate() runs

# transformers' defaults: with other values it warns that greedy decoding ignores them.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}


def other_writers(pair: Pair, settings: Settings) -> list[Writer]:
    """Make the writers other than the lanes.

    On a processor `generate()` runs the models in their stored dtype or copies in fp32, as the
    lanes do: whichever is faster there. The plain lane runs the copies.
    """
    is_compiled = make_engine(pair.target, pair.vocab).name != EagerEngine.name
    widened = in_fp32(pair)
    if widened.target is not pair.target:
        # min takes the first of equals.
        candidates = [in_one_dtype(pair), widened]
        pair = min(candidates, key=lambda candidate: _trial_seconds(candidate, settings))
    writers = [_generate_writer(pair, settings, GENERATE)]
    if settings.gamma and drafter_kind(settings.drafter).predicted == "copied":
        writers.append(_generate_writer(pair, settings, LOOKUP))
    if settings.gamma and pair.draft is not None:
        writers.append(_generate_writer(pair, settings, ASSISTED))
        if is_compiled:
            writers.append(_plain_writer(widened, settings))
    return writers


def _trial_seconds(pair: Pair, settings: Settings) -> float:
    """Seconds of a short `generate()`, the best of three."""
    short = replace(settings, max_new_tokens=16)
    return min(generate_seconds(pair, [0], short)[0] for _ in range(3))


def _generate_writer(pair: Pair, settings: Settings, name: str) -> Writer:
    lane = BASELINE if name == GENERATE else SPECULATIVE
    variant = Variant(name, lane)

    def write(prompt: TextPrompt) -> Written:
        ids = pair.encode(prompt, chat=settings.chat)
        seconds, emitted = generate_seconds(pair, ids, settings, name)
        return Written({variant: len(emitted) / seconds})

    return Writer(name, write)


def _plain_writer(pair: Pair, settings: Settings) -> Writer:
    """The speculative lane with the eager engine; prefill counts."""

    def write(prompt: TextPrompt) -> Written:
        with eager_only():
            result = generate(pair, prompt, settings)
        prefill = sum(result.trace.header.prefill_seconds[SPECULATIVE].values())
        seconds = prefill + result.rounds[-1].clock
        rate = result.metrics.emitted / seconds
        return Written({Variant(PLAIN, SPECULATIVE): rate})

    return Writer(PLAIN, write)


def generate_seconds(
    pair: Pair, prompt_ids: Sequence[int], settings: Settings, name: str = GENERATE
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, including the prompt, and the ids that it emitted.

    It emits `max_new_tokens` tokens, even after an end of text. name: `ASSISTED` uses the draft as
    the assistant, with a constant `settings.gamma` tokens per round and no confidence threshold;
    `LOOKUP` drafts as many tokens by prompt lookup.
    """
    target: Any = pair.target
    ids = torch.tensor([list(prompt_ids)], device=target.device)
    assistant = pair.draft if name == ASSISTED else None
    lookup_tokens = settings.gamma if name == LOOKUP else None
    config: dict[str, Any] = {
        "do_sample": not settings.greedy,
        "max_new_tokens": settings.max_new_tokens,
        "eos_token_id": None,
        "pad_token_id": 0,
        "prompt_lookup_num_tokens": lookup_tokens,
    }
    if settings.greedy:
        config |= NEUTRAL
    else:
        config |= {name: getattr(settings, name) for name in NEUTRAL}
    assistant_config = {
        "num_assistant_tokens": settings.gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
        "eos_token_id": None,
    }
    torch.manual_seed(settings.seed)
    with _configured(target, config), _configured(assistant, assistant_config):
        start = now(pair.device)
        with torch.inference_mode():
            output = target.generate(
                ids, attention_mask=torch.ones_like(ids), assistant_model=assistant
            )
        seconds = now(pair.device) - start
    return seconds, output[0, ids.shape[1] :].tolist()


@contextmanager
def _configured(model: Any, values: dict[str, Any]) -> Iterator[None]:
    """Within, the model's generation config has these values; None has no config to change."""
    if model is None:
        yield
        return
    usual_config = model.generation_config
    model.generation_config = copy.deepcopy(usual_config)
    model.generation_config.update(**values)
    try:
        yield
    finally:
        model.generation_config = usual_config
