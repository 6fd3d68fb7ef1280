"""A model of a GGUF file that has weights but no code until it is called.

Compiled passes read the weights of a model and never call its modules, and importing those of
transformers takes more than a second. So the modules here have the names and the weights of
transformers' modules, and nothing more. A model becomes transformers' own when it is called, or
asked for anything else that transformers' model has.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..base.errors import PairError
from ..core.llama_layer import LINEARS, LlamaSizes, llama_norms, llama_sizes

CARRIED_OVER = (
    "generation_config",
    "name_or_path",
    "packed_as",
    "products",
    "stores_tied_apart",
    "weights_file",
)
"""Attributes besides the config that the completed model takes over."""

HOOKS = {"forward", *(name for name in vars(nn.Module()) if name.startswith("_forward_"))}
"""Attributes that a user may have put on a module to see or change its calls."""

_completing = threading.Lock()


class WeightsOnly(nn.Module):
    """A module without code, under the name of transformers' module with code. Missing attributes
    come from that module."""

    packed_as: str | None = None
    """The kind of its blocks, as in `PackedLinear`."""

    def belong_to(self, whole: PackedModel, path: str) -> None:
        """Remember the model that this module is a part of, and its path there."""
        self._whole = weakref.ref(whole)
        self._path = path

    def forward(self, *values: Any, **named: Any) -> Any:
        # Not a call: hooks of this module are on that module too, and have run already.
        return self._with_code().forward(*values, **named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_whole" not in vars(self):
                raise
        return getattr(self._with_code(), name)

    def _with_code(self) -> Any:
        whole = self._whole()
        path = self._path
        if whole is None:
            raise PairError("the model of this module is gone: keep the pair.")
        whole.become_callable()
        return whole.get_submodule(path)


class _Norm(WeightsOnly):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.variance_epsilon = eps


class _Rotary(WeightsOnly):
    """inv_freq: fp32 [head_dim / 2]. slower: the file's divisors of these, or None."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.rope_type: str = config.rope_parameters["rope_type"]
        self.slower: Tensor | None = None
        if self.rope_type == "default":
            theta = config.rope_parameters["rope_theta"]
            exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim
            self.inv_freq = 1.0 / theta**exponents
            self.attention_scaling = 1.0
        else:
            frequencies_and_scaling = ROPE_INIT_FUNCTIONS[self.rope_type](config)
            self.inv_freq, self.attention_scaling = frequencies_and_scaling

    def slow_down(self, factors: Tensor) -> None:
        self.slower = factors
        self.inv_freq /= factors


class _Layer(WeightsOnly):
    def __init__(self, sizes: LlamaSizes, eps: float) -> None:
        super().__init__()
        self.self_attn = WeightsOnly()
        self.mlp = WeightsOnly()
        for linear in LINEARS:
            outputs, inputs = linear.shape(sizes)
            module = nn.Linear(inputs, outputs, bias=linear.has_bias(sizes))
            self.set_submodule(linear.module, module)
        for norm in llama_norms(sizes):
            (width,) = norm.shape(sizes)
            self.set_submodule(norm.module, _Norm(width, eps))


class _Inner(WeightsOnly):
    def __init__(self, config: Any) -> None:
        super().__init__()
        # The table is passed in: drawing random weights on `meta` would import what this module
        # avoids.
        table = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding.from_pretrained(table)
        sizes = llama_sizes(config)
        eps = config.rms_norm_eps
        self.layers = nn.ModuleList(_Layer(sizes, eps) for _ in range(sizes.layers))
        self.norm = _Norm(config.hidden_size, config.rms_norm_eps)


class PackedModel(WeightsOnly):
    """A model of llama, mistral, qwen2 or qwen3, on torch's `meta` device until it gets weights.

    packed_as: the kind of most blocks, None if its weights are numbers. products: of passes, one
    of `PRODUCTS`. stores_tied_apart: whether its output layer is a second copy of the embedding
    table, in another kind. weights_file: the file that its weights are mapped from.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.generation_config = GenerationConfig.from_model_config(config)
        self.name_or_path = ""
        self.packed_as = None
        self.products: str | None = None
        self.stores_tied_apart = False
        self.weights_file: Any = None
        with torch.device("meta"):
            self.model = _Inner(config)
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.model.rotary_emb = _Rotary(config)
        for path, module in self.named_modules():
            if isinstance(module, WeightsOnly):
                module.belong_to(self, path)
        self.eval()

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter, as in transformers."""
        floating = (parameter for parameter in self.parameters() if parameter.is_floating_point())
        return next(floating).dtype

    def can_generate(self) -> bool:
        return True

    def get_input_embeddings(self) -> Any:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def _apply(self, *values: Any, **named: Any) -> Any:
        """Become callable first: torch moves modules and changes their dtype through this
        method."""
        self.become_callable()
        return self._apply(*values, **named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Become callable first: copying and pickling go through this method."""
        self.become_callable()
        return self.__reduce_ex__(protocol)

    def become_callable(self) -> None:
        """Become transformers' own model, with the same weights."""
        with _completing:
            if type(self) is PackedModel:
                model = self._completed()
                object.__setattr__(self, "__dict__", model.__dict__)
                self.__class__ = type(model)

    def _completed(self) -> Any:
        from .metadata import meta_model

        model = meta_model(self.config)
        for path, module in self.named_modules():
            if not isinstance(module, WeightsOnly | nn.ModuleList):
                model.set_submodule(path, module)
                continue
            twin = model.get_submodule(path)
            if isinstance(module, _Norm):
                twin.weight = module.weight
            elif isinstance(module, _Rotary):
                twin = type(twin)(config=model.config)
                if module.slower is not None:
                    twin.inv_freq /= module.slower
                model.set_submodule(path, twin)
            for name in HOOKS & vars(module).keys():
                setattr(twin, name, vars(module)[name])
        for name in CARRIED_OVER:
            setattr(model, name, getattr(self, name))
        return model
