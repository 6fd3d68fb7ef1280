"""The models, and heads on them, that can run as compiled passes, and a trial against their own
logits."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import warnings
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...base.environment import has_numba
from ...core.llama_family import has_known_layers, is_llama_family
from ...core.llama_layer import LlamaSizes, llama_sizes
from ...core.model_facts import complete, context_length
from ...core.products import INTEGER_PRODUCTS
from ...files.few_bits.stale_code import CACHE, MARK, marked_sources

if TYPE_CHECKING:
    from ...core.protocols import StateEngine
    from ...core.states import DraftHead, StateReader

log = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
CODE = HERE / CACHE
"""The folder of compiled code."""

TRIED_LAYERS = 2  # of a packed model in its trial: its modules unpack all weights for each call
UNIT = 32  # widths must be multiples of it
TRIED = 7  # tokens of the trial: one more than the rows of a product
TOLERANCE = 1e-3  # of logits against the same weights in fp32; they differ by about 1e-5
INTEGER_TOLERANCE = 0.05  # for inputs rounded to 8 bits, at times one step apart
HALF_TOLERANCE = 0.1  # share of the largest logit, for a head that rounds every step to 16 bits
TRIED_OUTPUTS = 4096  # logits of each token that are compared
READ = {torch.float32, torch.bfloat16, torch.float16, torch.uint8}
"""Dtypes that passes can read; bytes are blocks of packed weights."""

_checked: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def compiled_engine(model: Any, vocab: int) -> StateEngine | None:
    """An engine of compiled passes with an empty cache, or None if `model` cannot have one.

    The first call in a process loads the compiled code, or compiles it, which takes seconds. The
    first call for a model tests it against the model's own logits; a warning says if they differ.
    For a GGUF file a passed test is remembered.
    """
    if not suits(model) or not _has_compiler():
        return None
    from .engine import CompiledEngine  # which imports numba

    if model not in _checked:
        _checked[model] = _passes_its_trial(model, vocab)
    if not _checked[model]:
        return None
    return CompiledEngine(model, vocab)


def compiled_head(head: DraftHead, vocab: int, target: StateEngine) -> StateReader | None:
    """`compiled_engine` for a head on a target, which is tested against torch's own outputs."""
    if not _suits_as_head(head) or not _has_compiler():
        return None
    from .engine import CompiledHeadEngine

    if head not in _checked:
        plain = head.make_engine(vocab, target)
        _checked[head] = _same_logits(plain, CompiledHeadEngine(head, vocab), head)
    if not _checked[head]:
        return None
    return CompiledHeadEngine(head, vocab)


def _has_compiler() -> bool:
    """Whether numba is installed and works."""
    if not has_numba():
        return False
    try:
        from . import engine  # noqa: F401
    except (ImportError, RuntimeError) as error:  # numba is broken, or has nowhere to keep code
        log.warning("models run without compiled passes: %s", error)
        return False
    return True


def suits(model: Any) -> bool:
    """Whether `forward.run_pass` computes the architecture of `model` and reads its weights."""
    if not is_llama_family(model):
        return False
    weights = list(model.parameters())
    return _lie_here(weights) and _has_fitting_sizes(model, weights)


def is_read_in_place(model: Any) -> bool:
    """Whether compiled passes use the weights of such a model in their stored format, computing in
    fp32. The model may be on the `meta` device."""
    return is_llama_family(model) and _has_fitting_sizes(model, model.parameters())


def _has_fitting_sizes(model: Any, weights: Iterable[Tensor]) -> bool:
    inner = model.model
    if not _fits(weights, llama_sizes(model.config)):
        return False
    if not context_length(model) or inner.rotary_emb.inv_freq.dtype != torch.float32:
        return False
    norms = [module for module in model.modules() if "variance_epsilon" in vars(module)]
    return len({norm.variance_epsilon for norm in norms}) == 1


def _suits_as_head(head: Any) -> bool:
    from ...core.states import EAGLE  # few runs load it

    if head.kind != EAGLE or head.embedding is None:
        return False
    layer = head.config.layer
    tensors = [*head.parameters(), head.embedding]
    if not _lie_here(tensors) or not has_known_layers(layer, head.rotary):
        return False
    if head.fc.in_features % UNIT or layer.mlp_bias:
        return False
    return _fits(tensors, head.config.sizes)


def _lie_here(tensors: Iterable[Tensor]) -> bool:
    return all(t.device.type == "cpu" and t.is_contiguous() for t in tensors)


def _fits(tensors: Iterable[Tensor], sizes: LlamaSizes) -> bool:
    """Whether passes can read weights and layers of these sizes and kinds."""
    if not {tensor.dtype for tensor in tensors} <= READ:
        return False
    widths = (sizes.width, sizes.inner, sizes.head_dim)
    return all(width % UNIT == 0 for width in widths)


def _passes_its_trial(model: Any, vocab: int) -> bool:
    """Whether compiled passes give the model's own logits, now or earlier with the same file, code
    and processor."""
    from .engine import CompiledEngine

    mark = _trial_mark(model, vocab)
    if mark is not None and mark.is_file():
        return True
    passes = _gives_its_logits(model, CompiledEngine(model, vocab))
    if passes and mark is not None:
        with contextlib.suppress(OSError):
            mark.touch()
    return passes


def _trial_mark(model: Any, vocab: int) -> Path | None:
    """The file whose existence says that a model passed its trial; its name depends on all that
    the outcome depends on. None for a model without a file with a checksum, or if no code is
    kept."""
    digest = getattr(model.config, "gguf_digest", None)
    sources = marked_sources(CODE / MARK)
    if digest is None or sources is None:
        return None
    import llvmlite.binding as llvm

    versions = [version(name) for name in ("numba", "llvmlite", "torch", "transformers", "gguf")]
    processor = [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    kinds = {str(getattr(module, "packed_as", None)) for module in model.modules()}
    kinds |= {str(parameter.dtype) for parameter in model.parameters()}
    kinds.add(f"products {getattr(model, 'products', None)}")
    rotary = model.model.rotary_emb
    positions = [str(rotary.inv_freq.tolist()), str(rotary.attention_scaling)]
    shape = [*sorted(kinds), str(len(model.model.layers)), str(vocab), *positions]
    facts = "\0".join([digest, sources, *shape, *versions, *processor])
    facts_digest = hashlib.sha256(facts.encode()).hexdigest()[:32]
    return CODE / f"tried-{facts_digest}"


@torch.inference_mode()
def _gives_its_logits(model: Any, engine: Any) -> bool:
    """Whether an engine gives the model's own logits for several tokens at once, and for the last
    of them alone."""
    complete(model)
    layers = None
    if getattr(model, "packed_as", None):
        layers = min(TRIED_LAYERS, len(model.model.layers))
    ids = torch.arange(min(TRIED, context_length(model) or 1)) % engine.vocab
    together = engine.forward(ids, keep=len(ids), layers=layers)
    engine.rollback(len(ids) - 1)
    alone = engine.forward(ids[-1:], keep=1, layers=layers)
    outputs = _tried_outputs(engine.vocab)
    expected = _fp32_logits(model, ids, layers, outputs)
    if not torch.isfinite(expected).all():
        return False  # the plain engine then raises the error
    expected = torch.cat([expected, expected[-1:]])
    logits = torch.cat([together, alone])[:, outputs]
    problem = "pass gave different logits; using transformers' modules"
    rounds_inputs = getattr(model, "products", None) == INTEGER_PRODUCTS
    tolerance = INTEGER_TOLERANCE if rounds_inputs else TOLERANCE
    return _are_close(logits, expected, tolerance, problem)


def _tried_outputs(vocab: int) -> Tensor:
    """The ids whose logits are compared: all, or the first and the last of a large vocabulary."""
    ids = torch.arange(vocab)
    if vocab <= TRIED_OUTPUTS:
        return ids
    half = TRIED_OUTPUTS // 2
    return torch.cat([ids[:half], ids[-half:]])


@torch.inference_mode()
def _same_logits(plain: StateReader, compiled: StateReader, head: Any) -> bool:
    """Whether both give the same logits for several tokens, and for one more after them."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(TRIED, head.fc.in_features, generator=generator)
    ids = torch.arange(TRIED + 1) % head.config.layer.vocab_size
    logits = []
    for engine in (plain, compiled):
        engine.receive(states)
        together = engine.forward(ids[:-1], keep=TRIED)
        alone = engine.forward(ids[-1:], keep=1)
        logits.append(torch.cat([together, alone]))
    plain_logits, compiled_logits = logits
    is_compared = torch.isfinite(plain_logits)  # tokens that the head cannot draft have -inf
    problem = "head gave different logits; using torch's modules"
    tolerance = TOLERANCE if head.dtype == torch.float32 else HALF_TOLERANCE
    compared = compiled_logits[is_compared]
    expected = plain_logits[is_compared]
    return _are_close(compared, expected, tolerance, problem)


@torch.inference_mode()
def _fp32_logits(model: Any, ids: Tensor, layers: int | None, outputs: Tensor) -> Tensor:
    """The logits [tokens, outputs] of a model's own modules and weights, computed in fp32 by its
    first `layers` layers, or by all of them. outputs: the wanted ids.

    One layer at a time is copied in fp32, so that memory does not double.
    """
    inner = model.model
    states = inner.embed_tokens(ids).float().unsqueeze(0)
    rotary = inner.rotary_emb(states, torch.arange(len(ids)).unsqueeze(0))
    mask = torch.full((1, 1, len(ids), len(ids)), -torch.inf).triu(1)
    for layer in inner.layers[:layers]:
        states = _in_fp32(layer)(states, attention_mask=mask, position_embeddings=rotary)
        if not isinstance(states, Tensor):  # some layers return more than the states
            states = states[0]
    states = _in_fp32(inner.norm)(states)[0]
    head = model.get_output_embeddings()
    if hasattr(head, "packed_as"):
        logits: Tensor = head.of_outputs(states, outputs)
    else:
        logits = states @ head.weight[outputs].float().T
    if head.bias is not None:
        logits = logits + head.bias[outputs].float()
    return logits


def _in_fp32(module: Any) -> Any:
    """The module, or a copy of it in fp32 if some weights have 16 bits."""
    dtypes = {parameter.dtype for parameter in module.parameters()}
    if not dtypes & {torch.float16, torch.bfloat16}:
        return module
    return copy.deepcopy(module).float()


def _are_close(logits: Tensor, expected: Tensor, tolerance: float, problem: str) -> bool:
    """Whether logits differ by at most this share of the largest one; warns otherwise."""
    scale = expected.abs().max().clamp(min=1.0)
    if (logits - expected).abs().max() <= tolerance * scale:
        return True
    warnings.warn(f"the compiled {problem}", stacklevel=4)
    return False
