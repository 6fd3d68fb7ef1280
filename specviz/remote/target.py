"""The target of a pair whose weights lie on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig

from ..errors import PairError
from ..settings import Settings
from .interface import Abilities, TargetServer
from .probing import find_server

LISTED = 5  # of a greedy run: as many as a card shows

PROBE = (
    "The quick brown fox, 3.14 and 2,718: naïve façade?\n\tdef f(x):\n        return x**2\n"
    "«Привет», 你好, مرحبا, 🙂👍🏽 — it's don’t  (two  spaces)"
)
"""A text on which tokenizers differ."""


class RemoteTarget:
    """Stands where a `Pair` has its target: the attributes that are asked of a model, and no
    weights.

    server: the model on its server. abilities: what the server can do. Passes are made by
    `engines.remote`.
    """

    training = False
    device = torch.device("cpu")  # where its distributions arrive
    dtype = "unknown"

    def __init__(self, server: TargetServer, abilities: Abilities, vocab: int) -> None:
        self.server, self.abilities = server, abilities
        self.name_or_path = server.model
        self.vocab = vocab
        self.config: Any = PretrainedConfig()
        self.config.vocab_size, self.config.max_position_embeddings = vocab, abilities.context
        self.generation_config = GenerationConfig()

    def can_generate(self) -> bool:
        """It is a causal language model."""
        return True

    def get_output_embeddings(self) -> None:
        """Its head is not here."""

    def parameters(self) -> Iterator[Tensor]:
        """Their number is unknown."""
        return iter(())

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Its layers are not here either."""
        return iter(())

    def listed_for(self, settings: Settings) -> int | None:
        """How many log-probabilities a run needs after each prefix, to be exact.

        Greedy, the first choice; with top-k, k; otherwise all. None if the server does not list as
        many but draws, which is exact too. Raises `PairError` if it can do neither.
        """
        vocab, most = self.vocab, self.abilities.listed
        if settings.greedy:
            return min(LISTED, most)
        needed = min(settings.top_k or vocab, vocab)
        if needed <= most:
            return min(vocab, max(needed, min(LISTED, most)))
        lists = f"this server lists {most} log-probabilities"
        if self.abilities.draws:
            if settings.rule == "token":
                return None
            raise PairError(
                f"{lists}, and the verdict {settings.verdict} needs all of them: set verdict to "
                f"'token', for which the server draws, or top_k from 1 to {most}."
            )
        raise PairError(
            f"{lists}, so above temperature 0 a run is exact only with top_k from 1 to {most}: set "
            "top_k, or start the server with all of them (vLLM: --max-logprobs -1) or so that it "
            "can draw (vLLM: --logprobs-mode processed_logprobs)."
        )


def remote_target(url: str, model: str, tokenizer: Any, key: str | None) -> RemoteTarget:
    """The target with this name on a server, if it has the vocabulary of `tokenizer`.

    Raises `ServerError`, and `PairError` if it cannot be a target or has another tokenizer.
    """
    vocab = max(tokenizer.get_vocab().values()) + 1
    server, abilities = find_server(url, model, key, vocab)
    check_tokenizer(server, tokenizer, vocab)
    target = RemoteTarget(server, abilities, vocab)
    target.generation_config.eos_token_id = tokenizer.eos_token_id
    return target


def check_tokenizer(server: TargetServer, tokenizer: Any, vocab: int) -> None:
    """Raises `PairError` if the server splits or spells text otherwise than `tokenizer`."""
    ours = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    ids = sorted(tokenizer.get_vocab().values())
    same = server.tokenize(PROBE) == list(ours)
    if not same or server.detokenize(ids) != tokenizer.decode(ids):
        raise PairError(
            f"{server.model} on {server.server.shown} has another tokenizer than the "
            f"draft, whose vocabulary has {vocab} tokens: choose a draft of its family."
        )


def prefixes_of(ids: Sequence[int], keep: int) -> list[list[int]]:
    """The last `keep` prefixes of `ids`, the shortest first."""
    return [list(ids[: len(ids) - back]) for back in range(keep - 1, -1, -1)]
