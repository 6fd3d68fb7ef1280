"""Pairs of well-known sizes with random weights, to measure a machine without a download.

The texts of such a pair mean nothing and its drafts are rarely accepted, so only the time of its
passes is useful. The verdicts are therefore scripted, and printed results say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from ..base.errors import SpecvizError
from ..core.pair import Pair
from ..core.tensor_verdict import decide_on_tensors
from ..files.devices import best_device
from .shapes import SHAPES, Size

if TYPE_CHECKING:
    from ..core.protocols import RandomSource, Rule


CPU = torch.device("cpu")
CONTEXT = 2048  # positions, enough for any benchmark


def shaped_pair(name: str) -> Pair:
    """A pair with the sizes of `name` and random weights, in bf16 on a GPU and fp32 on a CPU.

    Raises `SpecvizError` if there is too little memory.
    """
    shape = SHAPES[name]
    try:
        target = random_model(shape.target, best_device())
        draft = random_model(shape.draft, best_device())
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        raise SpecvizError(f"{name} does not fit into this device's memory.") from error
    tokenizer = numbers(shape.vocab)
    return Pair(target=target, draft=draft, tokenizer=tokenizer, name=f"{name}, random")


def scripted(acceptance: float) -> Rule:
    """Make a rule that keeps each draft with the probability `acceptance`.

    It calls `tensor_verdict.decide_on_tensors` and replaces only the number of accepted tokens, so
    a round takes the same time.
    """

    def keep_some(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource) -> Tensor:
        _, next_id = decide_on_tensors(p, q, drafted, u, source)
        is_kept = u < acceptance
        accepted = is_kept.long().cumprod(0).sum()
        return torch.stack([accepted, next_id])

    return keep_some


def random_model(size: Size, device: torch.device = CPU, *, seed: int = 0, **more: Any) -> Any:
    """A Llama of this size whose random weights repeat with their seed, and whose texts have no
    end: in fp32 on a processor, else in bf16. more: for its config."""
    dtype = torch.bfloat16
    if device.type == "cpu":
        dtype = torch.float32
    # Created on the device and in the dtype: moving or converting large models takes long.
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        config = LlamaConfig(
            **size._asdict(),
            max_position_embeddings=CONTEXT,
            eos_token_id=None,
            bos_token_id=None,
            pad_token_id=None,
            **more,
        )
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        return model.eval()


def numbers(vocab: int) -> Any:
    """A tokenizer whose tokens are the numbers from 0 to vocab - 1."""
    ids = {str(number): number for number in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
