"""The ids that end a text or a turn.

They are those that a model names, control tokens that are spelled like an end, and the token with
which a chat template ends a turn.

llama.cpp does the same: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import PairError, shown
from .chat_template import text_after_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from .protocols import LanguageModel

ENDS = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
}
"""Control tokens that end a text or a turn, by their spelling: models name only some of them."""

CHATML_END = "<|im_end|>"
"""The end of a turn in ChatML, a template that some base models have too."""

MESSAGE_END = "<|end|>"
REPLY_ENDS = {"<|return|>", "<|call|>"}
"""Ends of a reply in templates whose replies have several messages; `MESSAGE_END` ends one."""

REPLY = "specviz"
"""A sample turn of the assistant, to see how a template ends turns."""


def end_ids(model: LanguageModel, tokenizer: Tokenizer) -> frozenset[int]:
    """Return all ids that end a text or a turn."""
    control = control_tokens(tokenizer)
    return named_end_ids(model, tokenizer) | spelled_ends(control) | _turn_ends(tokenizer, control)


def named_end_ids(model: LanguageModel, tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end a text by a model's generation config or its tokenizer. Raises `PairError`
    if the config names something else than ids."""
    config = getattr(model, "generation_config", None) or model.config
    named = getattr(config, "eos_token_id", None)
    if named is None or named == "":
        named = []
    ids = [named] if type(named) is int else named
    if not _are_ids(ids):
        raise PairError(
            f"eos_token_id in the model's config is {shown(named)}: use the id of a token, or a "
            "list of ids."
        )
    end = getattr(tokenizer, "eos_token", None)
    by_tokenizer = {i for i, piece in control_tokens(tokenizer).items() if piece == end}
    return frozenset({*ids, *by_tokenizer})


def _are_ids(ids: object) -> bool:
    if not isinstance(ids, list | tuple | set):
        return False
    return all(type(token_id) is int for token_id in ids)


def spelled_ends(control: Mapping[int, str]) -> frozenset[int]:
    """Select the control tokens (id -> spelling) that are spelled like an end."""
    spellings = ENDS
    if set(control.values()) >= REPLY_ENDS:
        spellings = ENDS - {MESSAGE_END}
    return frozenset(i for i, piece in control.items() if piece in spellings)


def control_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """The tokens that were added to a tokenizer's vocabulary: id -> spelling."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    return {i: str(token) for i, token in added.items()}


def is_tuned_for(
    template: object,
    named: Collection[int],
    control: Mapping[int, str],
    vocab: Callable[[], Mapping[str, int]],
) -> bool:
    """Whether a model was tuned for its tokenizer's chat template.

    Some base models have the template of the tuned model as well. They are recognised by the end
    of text that they name, which is not the token that ends a turn. named: the ids of these ends.
    control: id -> spelling of control tokens. vocab: a function for spelling -> id, which is slow.
    """
    if CHATML_END not in str(template) or not named:
        return bool(template)
    if any(control.get(i) == CHATML_END for i in named):
        return True
    turn_end = vocab().get(CHATML_END)
    return turn_end is None or turn_end in named


def _turn_ends(tokenizer: Any, control: Mapping[int, str]) -> frozenset[int]:
    """The control token that a chat template puts after a turn of the assistant, if it has one."""
    if not getattr(tokenizer, "chat_template", None):
        return frozenset()
    text = text_after_reply(tokenizer, REPLY)
    if text is None:
        return frozenset()
    candidates = [i for i, piece in control.items() if text.lstrip().startswith(piece)]
    if not candidates:
        return frozenset()
    return frozenset([max(candidates, key=lambda i: len(control[i]))])
