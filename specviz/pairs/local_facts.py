"""Facts of a model on this machine from the headers of its files: size, vocabulary, memory. No
weights are read, and no torch is needed."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import orjson

from ..base.errors import PairError
from ..core.ends import CHATML_END, is_tuned_for
from ..files.gguf.header import GgufHeader
from ..files.gguf.keys import READ, check_keys, head_sizes
from ..files.gguf.layout import can_stay_packed, integer_bytes
from ..files.gguf.outline import LongTexts, read_outline, sharing_lists
from ..files.gguf.tokenizer import (
    BYTE_LEVEL,
    MODEL,
    PADDING,
    SENTENCE_PIECE,
    SUPPRESSED,
    TEMPLATE,
    UNUSED,
    split_of,
)
from ..files.local_models import OLLAMA, SAFETENSORS, StoredModel, short_name, store_of
from ..files.memory import STORED, TYPICAL_CONTEXT, LayerCache, MemoryNeed
from ..sides.heads.configs import is_head_config

MAX_HEADER = 100_000_000  # bytes of a safetensors header or of a tokenizer, as safetensors has it
MAX_VOCAB = 2_000_000  # pieces
MAX_LAYERS = 10_000
LLAMA_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that a processor keeps in 16 bits if their files do; others become fp32."""

_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf", re.IGNORECASE)
_TENSOR = re.compile(
    r"(token_embd|output|output_norm|rope_freqs|rope_factors_\w+|position_embd)\..*"
)
_TEXT = "ForCausalLM"
_OLDER_TEXT = "LMHeadModel"


class UnsupportedModel(Exception):
    """A model of a kind that cannot run here."""


READ_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    ZeroDivisionError,
    OverflowError,
)
"""What files of strangers, which hold anything, make the readers of this module raise."""


class Damaged(Exception):
    """A model's files are damaged or incomplete."""


class Head(Exception):
    """A folder holds a head, which drafts for its own target only."""


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a tokenizer in the order of their ids, in a GGUF file's encoding. used: their
    number without padding at the end."""

    texts: LongTexts
    used: int

    def begins_with(self, other: Vocabulary, count: int) -> bool:
        """Whether both vocabularies begin with the same `count` pieces."""
        if self.texts is other.texts or count == 0:
            return True
        end = other.texts.ends[count - 1]
        return self.texts.data[:end] == other.texts.data[:end]


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine."""

    name: str  # its part of a pair's name
    called: str  # its name in the header of a run
    size: int  # bytes of its weight files
    parameters: int
    width: int  # the number of logits
    is_chat: bool
    need: MemoryNeed
    precision: str  # on a processor
    vocabulary: Vocabulary | None  # None if its tokenizer's format cannot be compared

    def memory(self, copies: int, *, cpu: bool) -> int:
        """Bytes of its weights and of `copies` caches of a typical length."""
        need = replace(self.need, copies=copies)
        precision = "bfloat16"
        if cpu:
            precision = self.precision
        return need.bytes(precision, TYPICAL_CONTEXT)


@contextmanager
def sharing_vocabularies() -> Iterator[None]:
    """Cache vocabularies inside the block, so that models which share one read it once."""
    try:
        with sharing_lists():
            yield
    finally:
        _known_tokenizers.clear()


def read_facts(model: StoredModel) -> LocalModel:
    """Read the facts about a model. Raises `Damaged`, `UnsupportedModel` or `Head`."""
    try:
        if model.path.is_dir():
            return _folder_facts(model)
        return _file_facts(model)
    except READ_ERRORS as error:
        raise Damaged from error


def encoded(pieces: Iterable[str]) -> LongTexts:
    """Strings in a GGUF file's encoding."""
    parts = []
    ends = array("Q")
    position = 0
    for piece in pieces:
        text = piece.encode("utf-8", "surrogatepass")
        parts.append(len(text).to_bytes(8, "little"))
        parts.append(text)
        position += 8 + len(text)
        ends.append(position)
    return LongTexts(b"".join(parts), ends)


def _file_facts(model: StoredModel) -> LocalModel:
    if _PART.search(model.path.name):
        raise UnsupportedModel
    try:
        header = read_outline(model.path)
    except PairError as error:
        raise Damaged from error
    try:
        _check_understood(header)
    except PairError as error:
        raise UnsupportedModel from error
    table = header.tensors.get("token_embd.weight")
    if table is None:
        raise Damaged
    need = _file_need(header)
    if need.stored is not None:
        precision = STORED
    elif header.architecture in LLAMA_TYPES:
        precision = "bfloat16"
    else:
        precision = "float32"
    vocabulary = _file_vocabulary(header)
    return LocalModel(
        name=model.name,
        called=header.named or _file_name(model),
        size=header.stored,
        parameters=header.parameters,
        width=table.shape[0],
        is_chat=_is_file_tuned(header, vocabulary),
        need=need,
        precision=precision,
        vocabulary=vocabulary,
    )


def _file_need(header: GgufHeader) -> MemoryNeed:
    """The memory that a file's model needs with one cache. Raises `Damaged`."""
    sizes = head_sizes(header)
    layers = header.number("block_count")
    if sizes is None or not isinstance(layers, int):
        raise Damaged
    if not 0 < layers <= min(MAX_LAYERS, len(header.tensors)):
        raise Damaged
    context: int | None = None
    if context_length := header.number("context_length"):
        context = int(context_length)
    stored_bytes: int | None = None
    if can_stay_packed(header):
        stored_bytes = integer_bytes(header)
    cache = LayerCache(2 * sizes.key_heads * sizes.width)
    return MemoryNeed(
        parameters=header.parameters,
        quantizable=0,
        layers=[cache] * layers,
        context=context,
        stored=stored_bytes,
    )


def _file_name(model: StoredModel) -> str:
    """The name of a file whose header has none, by the rule of `GgufHeader.name`."""
    store = store_of(model.name)
    if store is not None and store.prefix == OLLAMA:  # its files are called by their checksums
        return short_name(model.name)
    return model.path.stem


def _check_understood(header: GgufHeader) -> None:
    """Raise `UnsupportedModel`, or `PairError`, for a file that loading would refuse."""
    if header.architecture not in READ:
        raise UnsupportedModel
    check_keys(header)
    for name in header.tensors:
        if not name.startswith("blk.") and not _TENSOR.fullmatch(name):
            raise UnsupportedModel  # parts that see pictures, for example
    tokenizer = header.text(MODEL)
    if tokenizer not in (BYTE_LEVEL, SENTENCE_PIECE) or header.values.get(SUPPRESSED):
        raise UnsupportedModel
    if tokenizer == BYTE_LEVEL:
        split_of(header)


def _file_vocabulary(header: GgufHeader) -> Vocabulary:
    pieces = header.values["tokenizer.ggml.tokens"]
    if not isinstance(pieces, LongTexts):
        pieces = encoded(pieces)
    kinds = header.values.get("tokenizer.ggml.token_type")
    used = len(pieces)
    if kinds is not None:
        if len(kinds) < used:
            raise Damaged
        while used and kinds[used - 1] == UNUSED and PADDING.fullmatch(pieces.text(used - 1)):
            used -= 1
    if not used:
        raise Damaged
    return Vocabulary(pieces, used)


def _is_file_tuned(header: GgufHeader, vocabulary: Vocabulary) -> bool:
    end_id = header.values.get("tokenizer.ggml.eos_token_id")
    end_token = None
    if isinstance(end_id, int) and 0 <= end_id < vocabulary.used:
        end_token = vocabulary.texts.text(end_id)
    return _is_tuned(header.text(TEMPLATE), end_token)


def _is_tuned(template: object, end_token: str | None) -> bool:
    """Whether a model was tuned for chat. end_token: its end-of-text token."""
    end_tokens = {}
    if end_token is not None:
        end_tokens[0] = end_token
    return is_tuned_for(template, end_tokens, end_tokens, lambda: {CHATML_END: -1})


def _folder_facts(model: StoredModel) -> LocalModel:
    folder = model.path
    config = _read_json(folder / "config.json")
    if is_head_config(config):
        raise Head
    _check_language_model(config)
    text = config.get("text_config", config)
    weights = _weight_files(folder)
    shapes: dict[str, Sequence[int]] = {}
    dtypes = set()
    for path in weights:
        for name, tensor in _tensors(path).items():
            shapes[name] = tensor["shape"]
            dtypes.add(tensor["dtype"])
    if text.get("tie_word_embeddings", config.get("tie_word_embeddings")):
        shapes.pop("lm_head.weight", None)
    parameters = sum(prod(shape) for shape in shapes.values())
    need = _folder_need(text, parameters)
    precision = "float32"
    if config["model_type"] in LLAMA_TYPES and dtypes <= {"BF16", "F16"}:
        precision = "bfloat16"
    return LocalModel(
        name=model.name,
        called=model.id or folder.name,
        size=sum(path.stat().st_size for path in weights),
        parameters=need.parameters,
        width=int(text["vocab_size"]),
        is_chat=_is_folder_tuned(folder),
        need=need,
        precision=precision,
        vocabulary=_folder_vocabulary(folder),
    )


def _folder_need(text_config: dict[str, Any], parameters: int) -> MemoryNeed:
    """The memory that a folder's model needs with one cache. Raises `UnsupportedModel`."""
    layers = int(text_config.get("num_hidden_layers", text_config.get("n_layer", 0)))
    heads = int(text_config.get("num_attention_heads", text_config.get("n_head", 0)))
    width = int(text_config.get("hidden_size", text_config.get("n_embd", 0)))
    if not 0 < layers <= MAX_LAYERS or heads < 1 or width < 1 or parameters < 1:
        raise UnsupportedModel
    key_heads = int(text_config.get("num_key_value_heads") or heads)
    head_width = int(text_config.get("head_dim") or width // heads)
    context = text_config.get("max_position_embeddings")
    if not isinstance(context, int) or context <= 0:
        context = None
    cache = LayerCache(2 * key_heads * head_width)
    return MemoryNeed(
        parameters=parameters,
        quantizable=0,
        layers=[cache] * layers,
        context=context,
    )


def _check_language_model(config: dict[str, Any]) -> None:
    """Raise `UnsupportedModel` unless transformers itself has this causal language model, and for
    quantized weights, which are read from GGUF files only."""
    kinds = [str(name) for name in config.get("architectures") or []]
    if not any(name.endswith((_TEXT, _OLDER_TEXT)) for name in kinds):
        raise UnsupportedModel
    if "quantization_config" in config or "quantization" in config:
        raise UnsupportedModel
    kind = str(config["model_type"]).replace("-", "_").removesuffix("_text")
    if not kind.isidentifier() or not _transformers_has(kind):
        raise UnsupportedModel


def _transformers_has(kind: str) -> bool:
    """Whether transformers has models of this type, without importing it."""
    package = find_spec("transformers")
    if package is None or package.origin is None:
        return False
    models = Path(package.origin).parent / "models"
    return (models / kind).is_dir()


def _weight_files(folder: Path) -> list[Path]:
    """The weight files of a model. Raises `Damaged` if some are missing, `UnsupportedModel` if none
    is in the safetensors format."""
    index = folder / f"model{SAFETENSORS}.index.json"
    whole = folder / f"model{SAFETENSORS}"
    if whole.is_file():
        return [whole]
    if index.is_file():
        weight_map = _read_json(index)["weight_map"]
        names = sorted(set(weight_map.values()))
        if any(Path(name).name != name for name in names):
            raise Damaged
        return [folder / name for name in names]
    if any(folder.glob("*.bin")) or any(folder.glob(f"*{SAFETENSORS}")):
        raise UnsupportedModel
    raise Damaged


def _tensors(path: Path) -> dict[str, Any]:
    """The tensors in a safetensors file's header. Raises `Damaged` if the file's length contradicts
    the header."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(MAX_HEADER, size - 8):
            raise Damaged
        tensors: dict[str, Any] = orjson.loads(file.read(length))
    tensors.pop("__metadata__", None)
    end = max(tensor["data_offsets"][1] for tensor in tensors.values())
    if 8 + length + end != size:
        raise Damaged
    return tensors


_known_tokenizers: list[tuple[bytes, Vocabulary]] = []
"""Vocabularies read recently, by their files: models of one family share them."""


def _folder_vocabulary(folder: Path) -> Vocabulary | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_HEADER:
        raise Damaged
    data = path.read_bytes()
    for known, vocabulary in _known_tokenizers:
        if known == data:
            return vocabulary
    read = _vocabulary_of(orjson.loads(data))
    if read is not None:
        _known_tokenizers.append((data, read))
        del _known_tokenizers[:-8]
    return read


def _vocabulary_of(tokenizer: dict[str, Any]) -> Vocabulary | None:
    """The vocabulary of a tokenizer of `tokenizers`; None if its format has no ids by piece."""
    vocab = tokenizer["model"].get("vocab")
    if not isinstance(vocab, dict):
        return None
    pieces = {int(token_id): piece for piece, token_id in vocab.items()}
    for token in tokenizer.get("added_tokens") or []:
        pieces[int(token["id"])] = token["content"]
    size = max(pieces) + 1
    if min(pieces) < 0 or size > MAX_VOCAB:
        raise Damaged
    # An id without a piece gets one that no other vocabulary has.
    texts = encoded(pieces.get(i, f"\x00{i}") for i in range(size))
    return Vocabulary(texts, size)


def _is_folder_tuned(folder: Path) -> bool:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return False
    values = _read_json(path)
    template = values.get("chat_template")
    template_file = folder / "chat_template.jinja"
    if template is None and template_file.is_file() and template_file.stat().st_size < MAX_HEADER:
        template = template_file.read_text("utf-8")
    end_token = values.get("eos_token")
    if isinstance(end_token, dict):
        end_token = end_token.get("content")
    if not isinstance(end_token, str):
        end_token = None
    return _is_tuned(template, end_token)


def _read_json(path: Path) -> Any:
    if path.stat().st_size > MAX_HEADER:
        raise Damaged
    values = json.loads(path.read_text("utf-8"))
    if not isinstance(values, dict):
        raise Damaged
    return values
