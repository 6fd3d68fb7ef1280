"""The ways to write a text that the lanes are compared with: transformers' `generate()`, alone and
with the draft as its assistant or with guesses looked up in the text, and the speculative lane on
the same modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...core.clock import now
from ...core.eager import EagerEngine
from ...core.engine_choice import eager_only, make_engine
from ...core.pair import Pair
from ...core.registry import drafter_kind
from ...lanes import LANE_LABELS, SPECULATIVE
from ...result import generate
from ...settings import Settings
from .turns import in_fp32

GENERATE, ASSISTED, LOOKUP = "generate()", "generate(assistant)", "generate(prompt lookup)"
PLAIN = f"{LANE_LABELS[SPECULATIVE]}, plain"  # on the same modules that generate() runs

# transformers' defaults: with other values it warns that greedy decoding ignores them.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}


def other_ways(pair: Pair, settings: Settings) -> dict[str, Callable[[str], float]]:
    """The ways besides the lanes, by name: functions from a prompt to tokens per second.

    On a processor `generate()` runs the models as they are stored, or copies of them in fp32, in
    which the lanes compute: whichever is faster there. The plain lane runs the copies.
    """
    compiled = make_engine(pair.target, pair.vocab).form != EagerEngine.form
    ours = in_fp32(pair)
    if ours.target is not pair.target:
        few = replace(settings, max_new_tokens=16)
        trials = {
            one: min(generate_seconds(one, [0], few)[0] for _ in range(3)) for one in (pair, ours)
        }
        pair = min(trials, key=trials.__getitem__)
    offered = {
        GENERATE: True,
        LOOKUP: drafter_kind(settings.drafter).predicted == "copied" and settings.gamma,
        ASSISTED: pair.draft is not None and settings.gamma,
    }
    ways: dict[str, Callable[[str], float]] = {
        name: partial(_rate, pair, settings, name) for name, can in offered.items() if can
    }
    if ASSISTED in ways and compiled:
        ways[PLAIN] = partial(_plain_rate, ours, settings)
    return ways


def _rate(pair: Pair, settings: Settings, way: str, prompt: str) -> float:
    ids = pair.encode(prompt, chat=settings.chat)
    seconds, emitted = generate_seconds(pair, ids, settings, way)
    return len(emitted) / seconds


def _plain_rate(pair: Pair, settings: Settings, prompt: str) -> float:
    """Tokens per second of the speculative lane with the eager engine, including prefill."""
    with eager_only():
        made = generate(pair, prompt, settings)
    prefill = made.trace.header.prefill_seconds[SPECULATIVE]
    return made.metrics.emitted / (sum(prefill.values()) + made.rounds[-1].clock)


def generate_seconds(
    pair: Pair, prompt_ids: Sequence[int], settings: Settings, way: str = GENERATE
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, including the prompt, and the ids that it emitted.

    It emits `max_new_tokens` tokens, even after an end of text. way: `ASSISTED` uses the draft as
    the assistant, with a constant `settings.gamma` tokens per round, whatever its confidence;
    `LOOKUP` guesses as many tokens by looking up the end of the text in the text before it.
    """
    target: Any = pair.target
    ids = torch.tensor([list(prompt_ids)], device=target.device)
    sampled = {name: getattr(settings, name) for name in NEUTRAL}
    own = {
        "do_sample": not settings.greedy,
        "max_new_tokens": settings.max_new_tokens,
        "eos_token_id": None,
        "pad_token_id": 0,
        "prompt_lookup_num_tokens": settings.gamma if way == LOOKUP else None,
        **(NEUTRAL if settings.greedy else sampled),
    }
    constant = {
        "num_assistant_tokens": settings.gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
        "eos_token_id": None,
    }
    assisted = way == ASSISTED
    assistant = {"assistant_model": pair.draft} if assisted else {}
    torch.manual_seed(settings.seed)
    with _configured(target, own), _configured(pair.draft, constant) if assisted else nullcontext():
        start = now(pair.device)
        with torch.inference_mode():
            output = target.generate(ids, attention_mask=torch.ones_like(ids), **assistant)
        seconds = now(pair.device) - start
    return seconds, output[0, ids.shape[1] :].tolist()


@contextmanager
def _configured(model: Any, values: dict[str, Any]) -> Iterator[None]:
    """Within, a model's config of generation has these values."""
    own = model.generation_config
    model.generation_config = copy.deepcopy(own)
    model.generation_config.update(**values)
    try:
        yield
    finally:
        model.generation_config = own
