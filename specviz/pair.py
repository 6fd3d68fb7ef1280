"""A target, a draft and the tokenizer that both were made for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .errors import PairError, PromptError


@dataclass(frozen=True, eq=False)
class Pair:
    """Two causal language models of transformers over one vocabulary.

    target, draft: models as `AutoModelForCausalLM` gives them; `draft` may be None, which
        leaves only decoding without a draft. tokenizer: the target's.
    draft_tokenizer: the draft's own, if it came with one: it is only compared.
    name: shown to the user.
    Raises `PairError` if a model is no causal language model or the vocabularies differ. Padded
    vocabularies are fine: ids that the tokenizer does not know are never drafted or emitted.
    """

    target: Any
    draft: Any
    tokenizer: Any
    draft_tokenizer: Any = None
    name: str = "custom"

    def __post_init__(self) -> None:
        _check_causal(self.target, "target")
        if self.draft is None:
            return
        _check_causal(self.draft, "draft")
        if self.draft_tokenizer is not None:
            _check_same_tokenizer(self.tokenizer, self.draft_tokenizer)
        if logit_width(self.draft) < self.vocab:
            raise PairError(
                f"the draft knows {logit_width(self.draft)} tokens, the target's tokenizer "
                f"{self.vocab}: choose a draft made for the same tokenizer."
            )

    @cached_property
    def vocab(self) -> int:
        """Ids 0 to vocab - 1 may be drafted and emitted."""
        return min(tokenizer_size(self.tokenizer), logit_width(self.target))

    @property
    def device(self) -> torch.device:
        """Where the target's logits appear."""
        head = self.target.get_output_embeddings()
        return torch.device(head.weight.device if head is not None else self.target.device)

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text, by the target's own generation settings."""
        config = getattr(self.target, "generation_config", None) or self.target.config
        ids = getattr(config, "eos_token_id", None)
        return frozenset([ids] if isinstance(ids, int) else ids or [])

    def encode(self, prompt: str | list[int] | tuple[int, ...]) -> list[int]:
        """The ids of a prompt. Raises `PromptError` if it is empty, unknown or too long."""
        ids = self._text_ids(prompt) if isinstance(prompt, str) else _id_list(prompt, self.vocab)
        if not ids:
            raise PromptError("the prompt is empty: write at least one word.")
        limit = context_length(self.target)
        if limit is not None and len(ids) > limit:
            raise PromptError(
                f"the prompt has {len(ids)} tokens and the target's context holds {limit}: "
                "shorten the prompt."
            )
        return ids

    def _text_ids(self, prompt: str) -> list[int]:
        if not prompt:
            return []
        try:
            ids = self.tokenizer(prompt)["input_ids"]
        except (TypeError, UnicodeError) as error:
            raise PromptError("the prompt holds characters that are not valid text.") from error
        return _id_list(ids, self.vocab)


def tokenizer_size(tokenizer: Any) -> int:
    """One more than the highest id that the tokenizer knows; ids need not be contiguous."""
    try:
        return max(tokenizer.get_vocab().values()) + 1
    except NotImplementedError:
        return len(tokenizer)


def logit_width(model: Any) -> int:
    """How many logits the model gives for a position, padding included."""
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    return int(weight.shape[0]) if weight is not None else int(text_config(model).vocab_size)


def text_config(model: Any) -> Any:
    """The language model's part of a config; multimodal configs nest it."""
    return model.config.get_text_config()


def context_length(model: Any) -> int | None:
    """The most positions that the model can see, or None if its config names no limit."""
    limit = getattr(text_config(model), "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


def parameter_count(model: Any) -> int:
    """Parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters())


def _check_causal(model: Any, role: str) -> None:
    config = getattr(model, "config", None)
    can = callable(getattr(model, "can_generate", None)) and model.can_generate()
    if config is None or not can or getattr(config, "is_encoder_decoder", False):
        raise PairError(
            f"the {role} is a {type(model).__name__}, not a causal language model: load it with "
            "AutoModelForCausalLM."
        )
    if getattr(model, "training", False):
        model.eval()


def _check_same_tokenizer(one: Any, other: Any) -> None:
    ours, theirs = one.get_vocab(), other.get_vocab()
    if ours == theirs:
        return
    by_id = {i: piece for piece, i in theirs.items()}
    for piece, i in sorted(ours.items(), key=lambda item: item[1]):
        if theirs.get(piece) != i:
            raise PairError(
                f"target and draft use different tokenizers: id {i} is {piece!r} for the target "
                f"and {by_id.get(i)!r} for the draft. Choose two models of one family."
            )


def _id_list(ids: Any, vocab: int) -> list[int]:
    try:
        numbers = [int(i) for i in ids if not isinstance(i, bool) and i == int(i)]
        whole = len(numbers) == len(ids)
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise PromptError("a prompt is text or a list of token ids (whole numbers).")
    for number in numbers:
        if not 0 <= number < vocab:
            raise PromptError(
                f"the prompt holds the id {number}: this tokenizer has the ids 0 to {vocab - 1}."
            )
    return numbers
