"""The ways to write a text that the lanes are compared with: transformers' `generate()`, alone and
with the draft as its assistant or with guesses looked up in the text, and the speculative lane on
the same modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...core.eager import EagerEngine
from ...core.engine import eager_only, make_engine, now
from ...core.events import Round
from ...core.loop import decode
from ...core.types import Prefilled
from ...kinds import drafter_kind
from ...lanes import LANE_LABELS
from ...pairs.pair import Pair
from ...settings import Settings
from ..racing import in_fp32

GENERATE, ASSISTED, LOOKUP = "generate()", "generate(assistant)", "generate(prompt lookup)"
PLAIN = f"{LANE_LABELS['speculative']}, plain"  # on the same modules that generate() runs

# transformers' defaults: with other values it warns that greedy decoding ignores them.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}

# An assistant that drafts as many tokens in every round.
CONSTANT = {
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
    "eos_token_id": None,
}


def other_ways(pair: Pair, settings: Settings) -> dict[str, Callable[[str], float]]:
    """The ways besides the lanes, by name: functions from a prompt to tokens per second.

    On a processor `generate()` runs the models as they are stored, or copies of them in fp32, in
    which the lanes compute: whichever is faster there. The plain lane runs the copies.
    """
    compiled = make_engine(pair.target, pair.vocab).form != EagerEngine.form
    ours = in_fp32(pair) if pair.device.type == "cpu" else pair
    if ours.target is not pair.target:
        pair = min((pair, ours), key=partial(_trial_seconds, settings=settings))

    def generated(way: str, prompt: str) -> float:
        ids = pair.encode(prompt, chat=settings.chat)
        seconds, emitted = generate_seconds(
            pair, ids, settings, assisted=way == ASSISTED, lookup=way == LOOKUP
        )
        return len(emitted) / seconds

    ways: dict[str, Callable[[str], float]] = {GENERATE: partial(generated, GENERATE)}
    if drafter_kind(settings.drafter).predicted == "copied" and settings.gamma:
        ways[LOOKUP] = partial(generated, LOOKUP)
    if pair.draft is not None and settings.gamma:
        ways[ASSISTED] = partial(generated, ASSISTED)
        if compiled:
            ways[PLAIN] = partial(_plain_rate, ours, settings)
    return ways


def _trial_seconds(pair: Pair, settings: Settings) -> float:
    """The shortest of three calls of `generate()` for a few tokens."""
    few = replace(settings, max_new_tokens=16)
    return min(generate_seconds(pair, [0], few)[0] for _ in range(3))


def generate_seconds(
    pair: Pair,
    prompt_ids: Sequence[int],
    settings: Settings,
    *,
    assisted: bool = False,
    lookup: bool = False,
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, including the prompt, and the ids that it emitted.

    It emits `max_new_tokens` tokens, even after an end of text. assisted: use the draft as the
    assistant, with a constant `settings.gamma` tokens per round, whatever the draft's confidence.
    lookup: guess as many tokens by looking up the end of the text in the text before it.
    """
    target: Any = pair.target
    ids = torch.tensor([list(prompt_ids)], device=target.device)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    config = _generation_config(target, settings)
    config.prompt_lookup_num_tokens = settings.gamma if lookup else None
    torch.manual_seed(settings.seed)
    drafting: AbstractContextManager[None] = nullcontext()
    if assisted:
        options["assistant_model"] = pair.draft
        drafting = _own_config(pair.draft, **CONSTANT, num_assistant_tokens=settings.gamma)
    # What a call's config leaves open is taken from the model's own: there the end of text must go.
    with _own_config(target, eos_token_id=None), drafting:
        start = now(pair.device)
        with torch.inference_mode():
            output = target.generate(ids, generation_config=config, **options)
        seconds = now(pair.device) - start
    return seconds, output[0, ids.shape[1] :].tolist()


def _generation_config(model: Any, settings: Settings) -> Any:
    config = copy.deepcopy(model.generation_config)
    length = {"max_new_tokens": settings.max_new_tokens, "eos_token_id": None, "pad_token_id": 0}
    sampled = {name: getattr(settings, name) for name in NEUTRAL}
    how = NEUTRAL if settings.greedy else sampled
    config.update(do_sample=not settings.greedy, **length, **how)
    return config


@contextmanager
def _own_config(model: Any, **values: Any) -> Iterator[None]:
    """Change a model's config of generation; it is restored after."""
    own = model.generation_config
    model.generation_config = copy.deepcopy(own)
    model.generation_config.update(**values)
    try:
        yield
    finally:
        model.generation_config = own


def _plain_rate(pair: Pair, settings: Settings, prompt: str) -> float:
    """Tokens per second of the speculative lane with the eager engine, including prefill."""
    ids = pair.encode(prompt, chat=settings.chat)
    with eager_only():
        first, *rounds = decode(pair, ids, settings, "speculative")
    assert isinstance(first, Prefilled)
    decoded = [r for r in rounds if isinstance(r, Round)]
    seconds = sum(first.seconds.values()) + decoded[-1].clock
    return sum(len(r.emitted) for r in decoded) / seconds
