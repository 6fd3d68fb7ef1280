"""One model on one device: timed forward passes over a cache that can be rolled back.

Private details of transformers' caches live here and nowhere else.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from .errors import ModelError
from .hosting import on_zerogpu
from .packed import PackedEngine, in_plain_form, packed_model
from .pair import text_config
from .shallow import shallow_model
from .static import static_engine
from .staticfit import static_wanted


class Engine(Protocol):
    """A causal language model and the tokens that its cache holds.

    form: the name of the implementation, for the page. length: cached tokens.
    """

    device: torch.device

    @property
    def form(self) -> str: ...

    @property
    def length(self) -> int: ...

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, heat: float = 1.0
    ) -> Tensor:
        """Append int64 `ids` [n] to the cache; fp32 logits of the last `keep`, over `heat`:
        [keep, vocab].

        With `layers`, of a pass through the first so many layers, the final norm and the head.
        The other layers' caches then miss these tokens, so that they must be rolled back before
        the next whole pass. Raises `ModelError` if the model cannot run.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. To be called once after each verdict, and
        after shallow passes with the length that they began at."""
        ...


class EagerEngine:
    """Any causal language model of transformers, run as it is."""

    form = "eager"

    def __init__(self, model: Any, vocab: int) -> None:
        self.device = torch.device(model.device)
        self.length = 0
        self._model = model
        self._vocab = vocab
        self._cache: Any = DynamicCache(config=model.config)
        # Sliding-window layers otherwise forget what a rollback needs.
        self._cache.activate_past_recording()
        self._checked = False
        self._shallow: dict[int, Any] = {}  # layers: the model cut off there
        self._tentative = (0, 0)  # layers, and tokens that only their caches hold
        parameters = inspect.signature(model.forward).parameters
        self._trims_logits = "logits_to_keep" in parameters

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, heat: float = 1.0
    ) -> Tensor:
        model = self._model if layers is None else self._cut_off(layers, ids.shape[0])
        options = {"logits_to_keep": keep} if self._trims_logits else {}
        try:
            output = model(
                input_ids=ids.to(self.device).unsqueeze(0),
                past_key_values=self._cache,
                use_cache=True,
                **options,
            )
        except torch.OutOfMemoryError as error:
            raise ModelError(
                "the device ran out of memory: use a shorter prompt or a smaller pair."
            ) from error
        self.length += ids.shape[0]
        logits = output.logits[0, -keep:, : self._vocab].float()
        return logits if heat == 1.0 else logits / heat

    def rollback(self, length: int) -> None:
        if not self._checked:
            self._check_rollback()
        layers, tokens = self._tentative
        if tokens:
            for layer in self._cache.layers[:layers]:
                layer.crop(-tokens)
            self._tentative, self.length = (0, 0), self.length - tokens
            if length == self.length:
                return
        # A crop by 0 still trims sliding windows, so it is not skipped.
        self._cache.crop(length - self.length)
        self.length = length

    def _cut_off(self, layers: int, tokens: int) -> Any:
        """The model's first `layers`, about to be fed so many tokens."""
        if layers not in self._shallow:
            self._shallow[layers] = shallow_model(self._model, layers)
        self._tentative = layers, self._tentative[1] + tokens
        return self._shallow[layers]

    def _check_rollback(self) -> None:
        if not self._cache.is_croppable or self._cache.get_seq_length() != self.length:
            name = text_config(self._model).model_type
            raise ModelError(
                f"models of type {name} keep a running state that cannot be rolled back, so "
                "rejected drafts could not be undone: choose an attention-only model."
            )
        self._checked = True


def make_engine(model: Any, vocab: int) -> Engine:
    """The fastest form that can run this model exactly, with an empty cache.

    The static form runs only where SPECVIZ_FORM asks for it.
    """
    # A process on ZeroGPU makes one run or a few: too short a life to prepare another form.
    if on_zerogpu() or in_plain_form():
        return EagerEngine(model, vocab)
    if static_wanted() and (static := static_engine(model, vocab)) is not None:
        return static
    packed = packed_model(model, vocab)
    return PackedEngine(packed) if packed is not None else EagerEngine(model, vocab)


def host_ids(ids: Sequence[int]) -> Tensor:
    """int64 [n] in the host's memory; torch.tensor takes three times as long."""
    return torch.from_numpy(np.array(ids, np.int64))


def prefill(engine: Engine, ids: Sequence[int]) -> float:
    """Feed `ids` (possibly none) into an empty engine; returns synchronised seconds."""
    start = now(engine.device)
    if ids:
        engine.forward(torch.tensor(ids, device=engine.device), keep=1)
        engine.rollback(engine.length)
    return now(engine.device) - start


def spare_threads() -> int:
    """Let torch use half of the processors, or as many as SPECVIZ_THREADS says; returns how many.

    Passes this short wait for their slowest thread, so one that shares its processor with the
    browser or the server holds all others up.
    """
    wanted = os.environ.get("SPECVIZ_THREADS", "")
    count = int(wanted) if wanted.isdigit() else (os.cpu_count() or 2) // 2
    torch.set_num_threads(max(1, count))
    return torch.get_num_threads()


def now(device: torch.device) -> float:
    """Seconds of a monotonic clock, read after all work queued on `device` is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
