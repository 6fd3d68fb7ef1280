"""Models of GGUF files with their weights in the stored format, for compiled passes.

The model has transformers' config and a `PackedModel`, whose linear layers and embedding table
hold blocks of the file instead of numbers. Once it has become transformers' own, its modules can
run too, but slowly: each unpacks its weights for each call.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import PairError
from ..core.llama_layer import linear_places, llama_sizes
from ..core.products import INTEGER_PRODUCTS
from ..core.threads import all_threads, one_torch_thread
from .few_bits.unpacking import BLOCK, PIECE, unpacked
from .gguf.config import config_of
from .gguf.header import GgufHeader, unreadable
from .gguf.keys import FREQUENCIES, unused_tensor
from .gguf.layout import named_tensors, stores_tied_apart
from .gguf.tokenizer import read_gguf_tokenizer
from .metadata import ModelMetadata
from .packed_model import PackedModel
from .packed_weights import HeldTensor, PackedWeights
from .source import ModelSource

TINY = 1e-30
"""Inputs below it are rounded to 0, as in `integer_products`."""


class PackedLinear(nn.Module):
    """A linear layer whose weights are blocks of a GGUF file.

    weight: uint8 [out_features, bytes of a row]. packed_as: the kind of the blocks, such as
    "Q4_K".
    """

    is_tiled = False

    def __init__(
        self, weight: nn.Parameter, packed_as: str, in_features: int, bias: nn.Parameter | None
    ) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.packed_as = packed_as
        self.in_features = in_features
        self.out_features = len(weight)

    @property
    def numbers(self) -> int:
        """The number of weights."""
        return self.in_features * self.out_features

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = inputs.new_empty(*inputs.shape[:-1], self.out_features)
        step = max(1, PIECE // self.in_features)
        for begin in range(0, self.out_features, step):
            part = slice(begin, begin + step)
            outputs[..., part] = self.of_outputs(inputs, part)
        if self.bias is None:
            return outputs
        return outputs + self.bias

    def of_outputs(self, inputs: Tensor, rows: slice | Tensor) -> Tensor:
        """Compute some outputs, without their bias. rows: their indices."""
        weights = self.unpacked(rows).to(inputs.dtype)
        return inputs @ weights.T

    def unpacked(self, rows: slice | Tensor) -> Tensor:
        """The weights of some outputs, fp32 [rows, in_features]."""
        return unpacked(self.weight[rows], self.packed_as, self.in_features)


class TiledLinear(PackedLinear):
    """A linear layer of blocks with sixteen outputs side by side, whose inputs are rounded to 8
    bits (`integer_products`).

    weight: uint8 [tiles, bytes of a tile]. packed_as: the kind of the blocks.
    """

    is_tiled = True

    def __init__(self, linear: PackedLinear, pool: ThreadPoolExecutor | None = None) -> None:
        from .few_bits.tiles import as_tiles  # which imports numba

        blocks = linear.weight.detach().numpy()
        tiles = as_tiles(linear.packed_as, blocks, pool)
        weight = nn.Parameter(torch.from_numpy(tiles), requires_grad=False)
        super().__init__(weight, linear.packed_as, linear.in_features, linear.bias)
        self.out_features = linear.out_features

    def of_outputs(self, inputs: Tensor, rows: slice | Tensor) -> Tensor:
        return super().of_outputs(rounded_to_8_bits(inputs), rows)

    def unpacked(self, rows: slice | Tensor) -> Tensor:
        from .few_bits.tiles import rows_of

        tiles = self.weight.detach().numpy()
        outputs = torch.arange(self.out_features)[rows]
        blocks = rows_of(self.packed_as, tiles, outputs.numpy())
        return unpacked(torch.from_numpy(blocks), self.packed_as, self.in_features)


def rounded_to_8_bits(inputs: Tensor) -> Tensor:
    """Round inputs as `integer_products.round_inputs` does: each block of the last dimension
    shares a scale."""
    blocks = inputs.unflatten(-1, (-1, BLOCK))
    magnitudes = blocks.abs()
    largest = magnitudes.amax(-1, keepdim=True).clamp(min=TINY)
    codes = (blocks * (127.0 / largest)).round()
    rounded: Tensor = codes * (largest / 127.0)
    return rounded.flatten(-2)


def choose_products(model: Any, products: str, weights: PackedWeights | None = None) -> None:
    """Let a model of `PackedLinear` layers multiply its weights in one of `PRODUCTS`.

    For integer products the layers get tiles. The embedding table stays as it is; an output layer
    that was tied to it gets tiles of its own. weights: of the file; their pages are released once
    the tiles are made.
    """
    model.products = products
    if products != INTEGER_PRODUCTS:
        return
    embedding = model.model.embed_tokens.weight
    is_tied = getattr(model.lm_head, "weight", None) is embedding
    with one_torch_thread(), ThreadPoolExecutor(all_threads()) as pool:
        for parent, name in [*linear_places(model), (model, "lm_head")]:
            linear = getattr(parent, name)
            if not isinstance(linear, PackedLinear) or linear.is_tiled:
                continue
            setattr(parent, name, TiledLinear(linear, pool))
            if weights is not None:
                weights.release(linear.weight)
    if is_tied and isinstance(model.lm_head, TiledLinear):
        model.stores_tied_apart = True


class PackedEmbedding(nn.Module):
    """An embedding table whose rows are blocks of a GGUF file, as in `PackedLinear`."""

    is_tiled = False

    def __init__(self, weight: nn.Parameter, packed_as: str, width: int) -> None:
        super().__init__()
        self.weight = weight
        self.packed_as = packed_as
        self.embedding_dim = width
        self.num_embeddings = len(weight)

    @property
    def numbers(self) -> int:
        """The number of weights."""
        return self.embedding_dim * self.num_embeddings

    def unpacked(self) -> Tensor:
        """The whole table, fp32 [num_embeddings, embedding_dim]."""
        return unpacked(self.weight, self.packed_as, self.embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        blocks = self.weight[ids.flatten()]
        rows = unpacked(blocks, self.packed_as, self.embedding_dim)
        return rows.view(*ids.shape, self.embedding_dim)


def packed_metadata(header: GgufHeader, name: str | None = None) -> ModelMetadata:
    """The metadata of the model in a file for which `can_stay_packed` holds. name: instead of the
    file's own. Raises `PairError`."""
    try:
        model = PackedModel(config_of(header))
        _check_tensors(header, model)
        tokenizer = read_gguf_tokenizer(header)
    except PairError:
        raise
    except Exception as error:  # a wrong header makes the libraries raise anything
        raise PairError(unreadable(header)) from error
    model.generation_config.eos_token_id = model.config.eos_token_id
    model.stores_tied_apart = stores_tied_apart(header)
    source = ModelSource(name or header.name, header.path)
    return ModelMetadata(source, model, tokenizer, header)


def _check_tensors(header: GgufHeader, model: Any) -> None:
    """Check that a file holds exactly the weights of its model, each in its shape. Raises
    `PairError`.

    model: on the `meta` device.
    """
    wanted: dict[str, tuple[object, ...]] = {}
    for name, parameter in model.named_parameters():
        wanted[name] = tuple(parameter.shape)
    if header.tied:
        wanted.pop("lm_head.weight", None)
    shapes: dict[str, tuple[object, ...]] = {}
    for tensor_name, path in named_tensors(header):
        name = f"{path}.{tensor_name.rpartition('.')[2]}"
        if name not in wanted:
            raise unused_tensor(header, tensor_name)
        shapes[name] = header.tensors[tensor_name].shape
    if missing := wanted.keys() - shapes.keys():
        raise PairError(
            f"{header.path.name} lacks weights, such as {min(missing)}: download it again."
        )
    factors = header.tensors.get(FREQUENCIES)
    if factors is not None:
        frequencies = llama_sizes(model.config).head_dim // 2
        shapes[FREQUENCIES] = (factors.kind, *factors.shape)
        wanted[FREQUENCIES] = ("F32", frequencies)
    for name, shape in shapes.items():
        if wanted.get(name) != shape:
            raise PairError(
                f"{name} in {header.path.name} does not have the shape that the header describes: "
                "download it again, or use the model's own repository."
            )


def load_packed(metadata: ModelMetadata, weights: PackedWeights, dtype: torch.dtype | None) -> Any:
    """Put weights into the model of `packed_metadata` and return it. weights: of the same file,
    from `read_weights` with this dtype. Raises `PairError` if the file lacks some."""
    header = metadata.packed
    assert header is not None, "models of other files are loaded by transformers"
    model = metadata.model
    _fill(model, header, weights)
    model.config.gguf_digest = f"sha256:{weights.digest}"
    model.config.dtype = dtype or torch.float32
    model.config._name_or_path = metadata.source.name
    model.name_or_path = metadata.source.name
    model.packed_as = header.quantization if dtype is None else None
    model.weights_file = weights.file
    return model


def _fill(model: Any, header: GgufHeader, weights: PackedWeights) -> None:
    """Put weights into a model on the `meta` device. Raises `PairError`."""
    if FREQUENCIES in weights.tensors:
        model.model.rotary_emb.slow_down(weights.tensors[FREQUENCIES].data)
    for name, path in named_tensors(header):
        role = name.rpartition(".")[2]
        _set_tensor(model, path, role, weights.tensors[name])
    if header.tied:
        _tie(model)
    missing = [name for name, weight in model.named_parameters() if weight.is_meta]
    if missing:
        raise PairError(
            f"{header.path.name} lacks weights, such as {missing[0]}: download it again."
        )


def _set_tensor(model: Any, path: str, role: str, held: HeldTensor) -> None:
    """Put a tensor into the module at this path, as its weight or its bias."""
    parent_path, _, attribute = path.rpartition(".")
    try:
        parent = model.get_submodule(parent_path)
        module = getattr(parent, attribute)
    except AttributeError as error:
        raise PairError(f"the model has no {path}: download the file again.") from error
    data = nn.Parameter(held.data, requires_grad=False)
    if held.packed_as is None:
        setattr(module, role, data)
    elif isinstance(module, nn.Embedding):
        setattr(parent, attribute, PackedEmbedding(data, held.packed_as, module.embedding_dim))
    else:
        bias = getattr(module, "bias", None)
        packed = PackedLinear(data, held.packed_as, module.in_features, bias)
        setattr(parent, attribute, packed)


def _tie(model: Any) -> None:
    table = model.model.embed_tokens
    packed_as = getattr(table, "packed_as", None)
    if packed_as is None:
        model.lm_head.weight = table.weight
    else:
        model.lm_head = PackedLinear(table.weight, packed_as, table.embedding_dim, None)
