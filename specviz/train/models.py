"""Models of a shape that are trained, and models and tokenizers as folders in the hub's format.

Files are whole or not there: each is written beside its place, and then moved.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..errors import SpecvizError, ran_out_of_memory
from ..pairs.load import write_checksums

HEAD_WIDTH = 64
CONTEXT = 1024  # positions
MOST_SHARED = 3  # most query heads per key-value head; sharing makes a long context cheaper


@dataclass(frozen=True)
class Shape:
    """The depth and width of a Llama, from which all other sizes follow.

    Raises `SpecvizError` if no model can have this shape.
    """

    layers: int
    width: int

    def __post_init__(self) -> None:
        if self.layers < 1 or self.width < HEAD_WIDTH or self.width % HEAD_WIDTH:
            raise SpecvizError(
                f"A model of {self.layers} layers x {self.width} cannot be built: use at least one "
                f"layer and a width that is a multiple of {HEAD_WIDTH}."
            )

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.width // HEAD_WIDTH

    @property
    def kv_heads(self) -> int:
        """The number of key-value heads: as few as `MOST_SHARED` allows."""
        groups = range(MOST_SHARED, 0, -1)
        return self.heads // next(group for group in groups if self.heads % group == 0)

    @property
    def feed_forward(self) -> int:
        """The inner width of the SwiGLU: 8/3 of the width, rounded up to a multiple of 64."""
        return -(-8 * self.width // 3 // HEAD_WIDTH) * HEAD_WIDTH


@dataclass(frozen=True)
class PairShape:
    """The shapes of a pair, and the default minutes of training for the target and the draft."""

    target: Shape
    draft: Shape
    minutes: float
    draft_minutes: float


PRESETS = {
    "small": PairShape(Shape(8, 384), Shape(2, 128), minutes=240, draft_minutes=60),
    "large": PairShape(Shape(8, 512), Shape(2, 192), minutes=30, draft_minutes=10),
}


def build_model(shape: Shape, *, vocabulary: int, end_id: int, seed: int) -> LlamaForCausalLM:
    """A new Llama in fp32 with tied embeddings. seed: of its random initial weights."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=HEAD_WIDTH,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=end_id,
        eos_token_id=end_id,
        pad_token_id=end_id,
        use_cache=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    # With zero output weights the layers do not change the residual stream at first, which makes
    # training more stable.
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    # transformers sets the padding row to zero and does not train it; here it is also the
    # end-of-text token.
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=config.initializer_range)
    model.model.embed_tokens.padding_idx = None
    return model


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a failure to write to `path` within the block into a `SpecvizError`."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk as errors of their own.
        if ran_out_of_memory(error):
            raise
        why = (getattr(error, "strerror", None) or str(error)).strip().splitlines()[0]
        raise SpecvizError(
            f"{path} cannot be written ({why}): free some space or choose another folder; what "
            "was saved before is whole, and the same command continues from it."
        ) from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to; after the block the file moves to `path`. Raises `SpecvizError`."""
    partial = path.with_suffix(".partial")
    try:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array to a file of NumPy's own format. Raises `SpecvizError`."""
    with whole_file(path) as partial, partial.open("wb") as handle:
        np.save(handle, array)


DEFAULT_TEMPERATURE = 0.7  # the greedy text of so small a model repeats itself
SHARD = "9MB"  # the hub requires large-file storage from 10 MB on


def save_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save config, bf16 weights, tokenizer and the checksums of all these files to `folder`.

    Raises `SpecvizError` if they cannot be written.
    """
    saved = torch.nn.Module.to(copy.deepcopy(model), torch.bfloat16)
    saved.config.use_cache = True
    end_id = saved.config.eos_token_id
    saved.generation_config = GenerationConfig(
        bos_token_id=end_id,
        eos_token_id=end_id,
        pad_token_id=end_id,
        do_sample=True,
        temperature=DEFAULT_TEMPERATURE,
    )
    with whole_folder(folder) as partial:
        saved.save_pretrained(partial, max_shard_size=SHARD)
        save_tokenizer(tokenizer, partial)
    write_checksums(folder)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to save a model to; after the block its files move to `folder`, and weights that
    were there before are gone. Raises `SpecvizError` if they cannot be written."""
    partial = folder.with_name(folder.name + ".partial")
    with explained(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        folder.mkdir(parents=True, exist_ok=True)
        fresh = {path.name for path in partial.iterdir()}
        for path in folder.glob("model*.safetensors*"):
            if path.name not in fresh:
                path.unlink()
        # tokenizer.json marks a tokenizer as done, so it is moved last.
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "tokenizer.json"):
            path.chmod(0o644)  # safetensors writes files that only their owner can read
            path.replace(folder / path.name)
        partial.rmdir()


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save the tokenizer; the general class gets the name that old versions of transformers know
    too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    for local in ("backend", "is_local", "local_files_only"):
        config.pop(local, None)
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n")


def load_model(folder: Path, device: str) -> LlamaForCausalLM:
    """The model in `folder`, in fp32 and evaluation mode; raises `SpecvizError` without one."""
    if not (folder / "config.json").is_file():
        raise SpecvizError(f"There is no model in {str(folder)!r}: train it first.")
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.nn.Module.to(model, device)
    model.eval()
    return model


def digest(model: torch.nn.Module) -> str:
    """A short hash of the weights, for the names of files that were made with them."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return total.hexdigest()[:12]
