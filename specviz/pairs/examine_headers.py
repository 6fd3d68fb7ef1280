"""Examine a pair by the headers of its GGUF files, without torch and in less than a second.

It answers only for valid files of a common architecture that are used in their stored format and
share one tokenizer. Anything else is examined with the models themselves (`examine_models`), whose
error is the one that loading would raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from ..base.errors import PairError
from ..core.ends import is_tuned_for
from ..core.llama_layer import LINEARS, LlamaSizes, llama_norms
from ..core.products import INTEGER_PRODUCTS
from ..files.findings import (
    Examined,
    Finding,
    Findings,
    better_draft,
    model_findings,
    one_tokenizer_findings,
    packed_findings,
)
from ..files.gguf.header import GgufHeader
from ..files.gguf.keys import FREQUENCIES, checked_gguf, head_sizes, rope_of
from ..files.gguf.layout import (
    can_stay_packed,
    integer_bytes,
    quantized_file_bytes,
    stores_tied_apart,
)
from ..files.gguf.tokenizer import (
    BYTE_LEVEL,
    SPECIAL,
    TEMPLATE,
    UNUSED,
    added_pieces,
    check_vocabulary,
    end_ids_of,
    pieces_of,
    tokenizer_fields,
    used_ids,
)
from ..files.local_paths import local_file
from ..files.memory import (
    COUNTED_LANES,
    DRAFT_KINDS,
    DRAFTING_LANES,
    DTYPES,
    STORED,
    LayerCache,
    MemoryNeed,
    PlannedLoad,
)
from ..files.source import ModelSource
from .table import NamedPair, suggested_draft

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Architectures whose layers all cache the whole context, with the tensors that `_shapes` lists."""


def examined_headers(
    names: Sequence[str], row: NamedPair | None, precision: Mapping[str, Any]
) -> Examined | None:
    """Facts about a target, and perhaps a draft, that run on a processor; None if headers alone do
    not suffice.

    row: the table's row for the pair. precision: dtype, quantize, draft_quantize and products, as
    for `load_pair`.
    """
    chosen_options = {name: value for name, value in precision.items() if value is not None}
    dtype = chosen_options.pop("dtype", None)
    if chosen_options or dtype not in (None, *DTYPES):
        return None
    models = []
    for name in names:
        model = _header_facts(name)
        if model is None:
            return None
        models.append(model)
    fields = tokenizer_fields(models[0].header)
    if any(tokenizer_fields(model.header) != fields for model in models):
        return None
    if not _has_valid_tokenizer(models[0].header):
        return None
    vocab = min(models[0].pieces, models[0].width)
    if any(model.width < vocab for model in models):
        return None
    findings: list[Finding] = []
    for model in models:
        findings += packed_findings(model.header, model.parameters, stays=True)
    findings += _pair_findings(models, vocab)
    shown = [model.source.shown for model in models]
    loads = _planned_loads(names, models, row, dtype)
    return Examined(shown, findings, loads, _parts(models))


def _planned_loads(
    names: Sequence[str], models: Sequence[_HeaderFacts], row: NamedPair | None, dtype: str | None
) -> list[PlannedLoad]:
    """Plan the memory and precision of a target, and perhaps a draft. dtype: the one asked for."""
    target_dtype = dtype
    draft_bits = None
    if row is not None and dtype is None:
        target_dtype = row.target_dtype
        if len(names) > 1:
            draft_bits = row.draft_bits(names[1])
    loads = [_planned_load(models[0], target_dtype, copies=COUNTED_LANES)]
    if len(models) > 1:
        loads.append(_planned_load(models[1], dtype, copies=DRAFTING_LANES))
    if draft_bits is not None:
        kind = DRAFT_KINDS[draft_bits]
        smaller = quantized_file_bytes(models[1].header, kind, kind)
        need = replace(loads[1].need, smaller=smaller)
        loads[1] = loads[1]._replace(need=need, precision=draft_bits)
    return loads


def _planned_load(model: _HeaderFacts, dtype: str | None, *, copies: int) -> PlannedLoad:
    """Plan one model. dtype: the dtype to which its file is unpacked; None keeps the stored
    format, which integer products read."""
    need = replace(model.need, copies=copies)
    if dtype is None:
        return PlannedLoad(model.source.shown, need, STORED, INTEGER_PRODUCTS)
    return PlannedLoad(model.source.shown, need, dtype, None)


def _pair_findings(models: Sequence[_HeaderFacts], vocab: int) -> Findings:
    hint = ""
    if len(models) > 1:
        suggested = suggested_draft(models[0].source.shown)
        hint = better_draft(suggested, models[1])
        widths = [model.width for model in models]
        yield from one_tokenizer_findings(models[0].pieces, widths, vocab)
    yield from model_findings(models, hint)


def _parts(models: Sequence[_HeaderFacts]) -> list[str]:
    parts = []
    if models[0].sizes.layers > 1:
        parts.append("layers")
    if len(models) > 1:
        parts.append("draft")
    return parts


def _header_facts(name: str) -> _HeaderFacts | None:
    """Read the facts in a file's header; None if there is no such file, or if its weights may
    differ from its header."""
    path = local_file(name)
    if path is None:
        return None
    try:
        header = checked_gguf(path)
        if header.architecture not in ARCHITECTURES or not can_stay_packed(header):
            return None
        sizes = _sizes(header)
        _size(header, "context_length")
        if not _has_all_tensors(header, sizes):
            return None
        tied_apart = stores_tied_apart(header)
    except PairError:
        return None
    return _HeaderFacts(ModelSource(header.name, header.path), header, sizes, tied_apart)


def _sizes(header: GgufHeader) -> LlamaSizes:
    """The sizes of a model. Raises `PairError` if a size is missing or impossible."""
    heads = head_sizes(header)
    table = header.tensors.get("token_embd.weight")
    if heads is None or table is None:
        raise _header_error(header)
    sizes = LlamaSizes(
        layers=_size(header, "block_count"),
        vocab=table.shape[0],
        width=_size(header, "embedding_length"),
        inner=_size(header, "feed_forward_length"),
        heads=heads.heads,
        kv_heads=heads.key_heads,
        head_dim=heads.width,
        qkv_bias=header.architecture == "qwen2",
        head_norms=header.architecture == "qwen3",
    )
    if sizes.vocab == 0:
        raise _header_error(header)
    fits_heads = sizes.width % sizes.heads == 0 and sizes.heads % sizes.kv_heads == 0
    if not fits_heads or sizes.head_dim % 2:
        raise _header_error(header)
    rope = rope_of(header)
    eps = header.number("attention.layer_norm_rms_epsilon") or 0.0
    if rope is None or not all(0 < number < inf for number in (rope.theta, rope.factor, eps)):
        raise _header_error(header)
    pieces = header.values.get("tokenizer.ggml.tokens")
    if isinstance(pieces, list) and len(pieces) != sizes.vocab:
        raise _header_error(header)
    return sizes


def _size(header: GgufHeader, key: str) -> int:
    """Read a positive integer from a header. Raises `PairError` if there is none."""
    number = header.number(key)
    if not isinstance(number, int) or number <= 0:
        raise _header_error(header)
    return number


def _header_error(header: GgufHeader) -> PairError:
    """The error for a file that must be examined with the model itself; its text is never shown."""
    return PairError(f"the header of {header.path.name} does not describe its model.")


def _shapes(sizes: LlamaSizes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The shape of each tensor of a model whose output layer is tied to its embedding table."""
    yield "token_embd.weight", (sizes.vocab, sizes.width)
    yield "output_norm.weight", (sizes.width,)
    for index in range(sizes.layers):
        for linear in LINEARS:
            yield f"blk.{index}.{linear.gguf}.weight", linear.shape(sizes)
            if linear.has_bias(sizes):
                yield f"blk.{index}.{linear.gguf}.bias", linear.shape(sizes)[:1]
        for norm in llama_norms(sizes):
            yield f"blk.{index}.{norm.gguf}.weight", norm.shape(sizes)


def _has_all_tensors(header: GgufHeader, sizes: LlamaSizes) -> bool:
    """Whether a file holds exactly the tensors of its model in the expected shapes."""
    if sizes.layers > len(header.tensors):  # a billion of them are not even counted
        return False
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    if header.architecture == "llama" and FREQUENCIES in shapes:
        factors = header.tensors[FREQUENCIES]
        if factors.kind != "F32" or factors.shape != (sizes.head_dim // 2,):
            return False
        del shapes[FREQUENCIES]
    wanted_shapes = dict(_shapes(sizes))
    if not header.tied:
        wanted_shapes["output.weight"] = wanted_shapes["token_embd.weight"]
    return shapes == wanted_shapes


def _strings(header: GgufHeader, key: str) -> list[str]:
    """Read a list of strings; empty if the value is none."""
    values = header.values.get(key)
    if not isinstance(values, list) or not values or not isinstance(values[0], str):
        return []
    return values


def _has_valid_tokenizer(header: GgufHeader) -> bool:
    """Whether a file's byte-level tokenizer is complete and consistent."""
    try:
        check_vocabulary(header)
    except PairError:
        return False
    pieces = _strings(header, "tokenizer.ggml.tokens")
    merges = _strings(header, "tokenizer.ggml.merges")
    kinds = header.values.get("tokenizer.ggml.token_type", [])
    if header.text("tokenizer.ggml.model") != BYTE_LEVEL or not merges:
        return False
    if not isinstance(kinds, list) or len(kinds) != len(pieces):
        return False
    vocab = {piece for piece, kind in pieces_of(header) if kind != UNUSED}
    if len(vocab) != len(pieces) - kinds.count(UNUSED):
        return False
    return _has_valid_special_ids(header, pieces, vocab) and _are_merges_in(vocab, merges)


def _has_valid_special_ids(header: GgufHeader, pieces: list[str], vocab: set[str]) -> bool:
    """Whether the ids of special tokens that a file names are those of pieces in use."""
    for key in SPECIAL.values():
        token_id = header.values.get(f"tokenizer.ggml.{key}_token_id", 0)
        if type(token_id) is not int or not 0 <= token_id < len(pieces):
            return False
        if pieces[token_id] not in vocab:
            return False
    return True


def _are_merges_in(vocab: set[str], merges: list[str]) -> bool:
    """Whether the vocabulary holds both parts of each merge, and what they merge to."""
    for merge in merges:
        first, _, second = merge.partition(" ")
        if first not in vocab or second not in vocab or first + second not in vocab:
            return False
    return True


@dataclass(frozen=True)
class _HeaderFacts:
    """A model described by its file's header, with the fields that findings read (`Described`).

    stores_tied_apart: as the function of this name says.
    """

    source: ModelSource
    header: GgufHeader
    sizes: LlamaSizes
    stores_tied_apart: bool

    experts: None = None

    @cached_property
    def parameters(self) -> int:
        uncounted = {FREQUENCIES}
        if self.stores_tied_apart:
            uncounted.add("output.weight")
        tensors = self.header.tensors.items()
        return sum(tensor.numbers for name, tensor in tensors if name not in uncounted)

    @property
    def context(self) -> int:
        return _size(self.header, "context_length")

    @property
    def width(self) -> int:
        """The number of logits."""
        return self.sizes.vocab

    @cached_property
    def pieces(self) -> int:
        """The tokenizer's highest id plus 1."""
        return used_ids(self.header)

    @cached_property
    def is_chat(self) -> bool:
        named = end_ids_of(self.header)
        control = added_pieces(self.header)
        return is_tuned_for(self.header.text(TEMPLATE), named, control, self._ids)

    def _ids(self) -> dict[str, int]:
        """The tokenizer's ids by piece."""
        pieces = enumerate(pieces_of(self.header))
        return {piece: token_id for token_id, (piece, kind) in pieces if kind != UNUSED}

    @property
    def need(self) -> MemoryNeed:
        """The memory that it needs with one cache."""
        quantizable = 0
        for name, tensor in self.header.tensors.items():
            if name.startswith("blk.") and len(tensor.shape) == 2:
                quantizable += tensor.numbers
        layer = LayerCache(self.sizes.cached)
        return MemoryNeed(
            parameters=self.parameters,
            quantizable=quantizable,
            layers=[layer] * self.sizes.layers,
            context=self.context,
            stored=integer_bytes(self.header),
        )
