"""A pair: a target, a draft and the tokenizer that both were trained with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from ..base.errors import PairError, PromptError, SettingsError, shown
from .ends import control_tokens, end_ids, is_tuned_for, named_end_ids
from .messages import Message, Messages, checked_messages, is_conversation
from .model_facts import context_length, logit_width, logits_device
from .prompt_ids import (
    chat_ids,
    checked_ids,
    literal_chat_ids,
    prompt_ids,
    special_ids,
    text_ids,
)
from .registry import drafters_for
from .settings import CHATS, NO_SETTINGS, Settings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from .lanes import Several
    from .protocols import LanguageModel, WatchedPair
    from .shared_tokens import SharedTokens
    from .states import DraftHead
    from .types import Prompt

_sizes: WeakKeyDictionary[Tokenizer, tuple[int, int]] = WeakKeyDictionary()
"""Cache of `tokenizer_size`: tokenizer -> its number of tokens, and the size found then."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two causal language models of transformers.

    target, draft: models as `AutoModelForCausalLM` returns them, or, for GGUF files that compiled
        passes read, models that load as such when they are first called or inspected; `draft` may
        be None, and then only the other drafters can be used.
    tokenizer: the target's.
    draft_tokenizer: the draft's own, if it has one; if it differs from the target's, drafts are
        translated (see `shared`).
    name: shown to the user.
    head: the model that reads the target's states, for the drafter "head": a `Head`, `MtpHead` or
        `Assistant`, or None.
    drafter, gamma, gamma_policy: its defaults, if not the usual ones.

    Raises `PairError` if a model is not a causal language model, or if the vocabularies have too
    little in common.
    Padding of vocabularies is allowed: ids that the tokenizer does not have are never drafted or
    emitted.
    """

    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Tokenizer
    draft_tokenizer: Tokenizer | None = None
    name: str = "custom"
    head: DraftHead | None = None
    drafter: str | None = None
    gamma: int | None = None
    gamma_policy: str | None = None

    def __post_init__(self) -> None:
        _check_causal(self.target, "target")
        if not callable(getattr(self.tokenizer, "get_vocab", None)):
            raise PairError(
                f"the tokenizer is {shown(self.tokenizer)}: load the target's with AutoTokenizer."
            )
        if self.head is not None:
            if not callable(getattr(self.head, "check", None)):
                raise PairError(
                    f"the head is {shown(self.head)}: load it by a pair's name, "
                    "'target-id+head-id'."
                )
            self.head.check(self.target)
        if self.draft is None:
            return
        _check_causal(self.draft, "draft")
        if self.shared is not None:
            self.shared.check()
        elif logit_width(self.draft) < self.vocab:
            raise PairError(
                f"the draft knows {logit_width(self.draft)} tokens and the target's tokenizer has "
                f"{self.vocab}: choose a draft made for the same tokenizer."
            )

    @property
    def draft_model(self) -> LanguageModel:
        """The draft model. Raises `PairError` if there is none."""
        if self.draft is None:
            raise PairError(
                "this pair has no draft model: choose one, or use one of the pair's drafters: "
                f"{', '.join(self.drafters)}."
            )
        return self.draft

    @cached_property
    def drafters(self) -> tuple[str, ...]:
        """The names in `Settings` of the drafters that this pair can use, its default first."""
        return drafters_for(self.parts, self.drafter)

    @cached_property
    def parts(self) -> frozenset[str]:
        """The parts that can draft: "draft", "head" and "layers", the target's first ones."""
        from .layers import layer_count  # a run with the draft model asks for no list

        parts = set()
        if self.draft is not None:
            parts.add("draft")
        if self.head is not None:
            parts.add("head")
        with suppress(PairError):
            if layer_count(self.target) > 1:
                parts.add("layers")
        return frozenset(parts)

    def settings(self, **values: Any) -> Settings:
        """`Settings` with these values and, unless they are among them, the first of `drafters` and
        the pair's own gamma, with its policy. Raises `SettingsError`."""
        # With a draft model, the drafter is that of `Settings` by default: no list is needed.
        if self.draft is None or self.drafter is not None:
            values.setdefault("drafter", self.drafters[0])
        if self.gamma is not None and "gamma" not in values:
            values["gamma"] = self.gamma
            if self.gamma_policy is not None:
                values.setdefault("gamma_policy", self.gamma_policy)
        return Settings(**values)

    @cached_property
    def shared(self) -> SharedTokens | None:
        """The tokens that both tokenizers share; None if target and draft have one tokenizer.

        Drafts then need no translation.
        """
        if self.draft is None or self.draft_tokenizer is None:
            return None
        if have_one_backend(self.tokenizer, self.draft_tokenizer):
            return None
        target_vocab = self.tokenizer.get_vocab()
        draft_vocab = self.draft_tokenizer.get_vocab()
        # Of a large vocabulary this takes a hundredth of the time of the comparison below.
        if draft_vocab == target_vocab:
            return None
        common = self._common_size
        common_vocab = {piece: i for piece, i in target_vocab.items() if i < common}
        if common_vocab.items() <= draft_vocab.items():
            return None
        from .shared_tokens import Vocabulary, shared_tokens  # most pairs have one tokenizer

        draft_size = min(tokenizer_size(self.draft_tokenizer), logit_width(self.draft))
        draft_ends = end_ids(self.draft, self.draft_tokenizer)
        return shared_tokens(
            Vocabulary(self.tokenizer, self._target_size, self.eos_ids),
            Vocabulary(self.draft_tokenizer, draft_size, draft_ends),
        )

    @cached_property
    def vocab(self) -> int:
        """The number of ids that may be drafted and emitted, 0 to vocab - 1.

        With one tokenizer they are those that both models know; else the target's.
        """
        if self.shared is None:
            return self._common_size
        return self._target_size

    @cached_property
    def draft_vocab(self) -> int:
        """The number of ids that the draft model may give a probability to."""
        if self.shared is None:
            return self.vocab
        return self.shared.draft_size

    @property
    def _target_size(self) -> int:
        return min(tokenizer_size(self.tokenizer), logit_width(self.target))

    @cached_property
    def _common_size(self) -> int:
        """The size of the vocabulary of a pair with one tokenizer.

        The last ids of a target may be special tokens, for example for images. A draft that reads
        only text may lack them; they are then left out.
        """
        size = self._target_size
        if self.draft is None or logit_width(self.draft) >= size:
            return size
        unknown = set(range(logit_width(self.draft), size))
        needed = unknown - special_ids(self.tokenizer) or unknown & self.eos_ids
        if needed:
            return size
        return min(unknown)

    @property
    def device(self) -> torch.device:
        """The device of the target's logits."""
        return logits_device(self.target)

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text or a turn: what the target, its tokenizer and its chat template
        say."""
        return end_ids(self.target, self.tokenizer)

    @cached_property
    def is_chat(self) -> bool:
        """Whether the target was tuned for its tokenizer's chat template."""
        return is_tuned_for(
            template=getattr(self.tokenizer, "chat_template", None),
            named=named_end_ids(self.target, self.tokenizer),
            control=control_tokens(self.tokenizer),
            vocab=self.tokenizer.get_vocab,
        )

    def encode(self, prompt: Prompt, *, chat: str = "auto") -> list[int]:
        """Encode a prompt, which is text, a list of ids, or a list of turns.

        chat: "on" puts a text into the tokenizer's chat template as the user's turn, "off" does
        not, "auto" does if the target `is_chat`. "literal" is "on", and control tokens that the
        text spells, such as "<|im_end|>", are plain text. Turns, {"role": ..., "content": ...},
        always need the template. Raises `PromptError` if the prompt is empty, too long or has
        unknown ids, or if the template is missing or does not take it; `SettingsError` for another
        `chat`.
        """
        if chat not in CHATS:
            raise SettingsError(f"chat is {chat!r}: use one of {', '.join(map(repr, CHATS))}.")
        ids = self._prompt_ids(prompt, chat)
        if not ids:
            raise PromptError("the prompt is empty: write at least one word.")
        limit = context_length(self.target)
        if limit is not None and len(ids) > limit:
            raise PromptError(
                f"the prompt has {len(ids)} tokens and the target's context holds {limit}: "
                "shorten the prompt."
            )
        return ids

    def _prompt_ids(self, prompt: Prompt, chat: str) -> list[int]:
        messages = self.messages_of(prompt, chat)
        if messages and chat == "literal":
            return literal_chat_ids(self.tokenizer, messages)
        if messages:
            return chat_ids(self.tokenizer, messages)
        if not isinstance(prompt, str):
            return checked_ids(prompt, self.vocab)
        if not prompt:
            return []
        return prompt_ids(self.tokenizer, prompt)

    def messages_of(self, prompt: Prompt, chat: str) -> Messages:
        """The turns that `encode` puts into the chat template; none if it uses no template.

        Raises `PromptError` for malformed turns, and for several where chat is "off".
        """
        if is_conversation(prompt):
            if chat == "off":
                raise PromptError(
                    "a prompt of several turns needs the target's chat template: set chat to "
                    "'auto' or 'on', or give the prompt as one text."
                )
            return checked_messages(prompt)
        in_template = chat in ("on", "literal") or (chat == "auto" and self.is_chat)
        if isinstance(prompt, str) and prompt and in_template:
            return (Message("user", prompt),)
        return ()

    def text_ids(self, text: str | list[int] | tuple[int, ...]) -> list[int]:
        """Encode a text that is not a prompt: without special tokens, of any length.

        Raises `PromptError` if it is neither text nor known ids.
        """
        if isinstance(text, str):
            return text_ids(self.tokenizer, text)
        return checked_ids(text, self.vocab)


def tokenizer_size(tokenizer: Tokenizer) -> int:
    """The tokenizer's highest id plus 1; its ids need not be contiguous."""
    # A pair is made twice, with its models' shapes and with their weights.
    count, size = _sizes.get(tokenizer, (None, 0))
    if count != len(tokenizer):
        size = 1 + max(tokenizer.get_vocab().values())
        _sizes[tokenizer] = len(tokenizer), size
    return size


def remember_size(tokenizer: Tokenizer, size: int) -> None:
    """Cache the result of `tokenizer_size` where the ids are known already.

    Reading a large vocabulary takes a tenth of a second.
    """
    _sizes[tokenizer] = len(tokenizer), size


def have_one_backend(first: Tokenizer, second: Tokenizer) -> bool:
    """Whether two tokenizers share a backend, as in two GGUF files with the same pieces."""
    backend = getattr(first, "backend_tokenizer", None)
    return backend is not None and backend is getattr(second, "backend_tokenizer", None)


def _check_causal(model: Any, role: str) -> None:
    """Raise `PairError` unless it is a causal language model; switch it to evaluation mode."""
    config = getattr(model, "config", None)
    generates = callable(getattr(model, "can_generate", None)) and model.can_generate()
    if config is None or not generates or getattr(config, "is_encoder_decoder", False):
        raise PairError(
            f"the {role} is a {type(model).__name__}, not a causal language model: load it with "
            "AutoModelForCausalLM."
        )
    if _reads_both_ways(model):
        raise PairError(
            f"the {role} is of type {config.model_type}, which reads text in both directions and "
            "cannot generate it token by token: choose a model that writes text."
        )
    if getattr(model, "training", False):
        model.eval()


def _reads_both_ways(model: Any) -> bool:
    """Whether it is an encoder, such as BERT, with a head that transformers calls causal too."""
    if model.config.get_text_config() is not model.config:
        return False  # its encoder is for pictures or sounds
    modules = model.modules() if hasattr(model, "modules") else []
    return any(vars(module).get("is_decoder") is False for module in modules)


def checked_pair(pair: object) -> Pair:
    """Return `pair` itself. Raises `PairError` if it is not a pair."""
    if isinstance(pair, Pair):
        return pair
    checked_watched(pair)
    raise PairError(
        "this pair can only race, because its server drafts and judges without reporting "
        "distributions: use race()."
    )


def checked_watched(pair: object) -> WatchedPair:
    """Return `pair` itself if it has a race of its own. Raises `PairError` if it has none."""
    if hasattr(pair, "race"):
        return cast("WatchedPair", pair)
    raise PairError(f"the pair is a {type(pair).__name__}: pass the result of load_pair.")


def settings_for(
    pair: Pair | WatchedPair, settings: Settings | Several | None, changes: Mapping[str, Any]
) -> Settings:
    """The settings of one lane: `settings`, or the pair's, with the `changes` of some fields.
    Raises `SettingsError`."""
    if settings is None:
        return pair.settings(**Settings.known(changes))
    if not isinstance(settings, Settings):
        raise SettingsError(NO_SETTINGS.format(shown(settings)))
    if not changes:
        return settings
    return replace(settings, **Settings.known(changes))
