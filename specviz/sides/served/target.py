"""A target whose weights are on a server, and its engine: its cache is a list of ids, and its
logits are the server's log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig

from ...base.errors import PairError, ServerError
from ...core.engine import BaseEngine, RemoteModel
from ...core.events import SERVER, STREAMED
from ...core.numpy_path import NumpyPath
from ...core.settings import Settings
from ...core.types import RunContext
from ...remote.address import ServerAddress
from ...remote.identity import LLAMA_CPP, Identity, identity_of
from ...remote.wire import Server
from .adapters import Completions, LlamaTarget
from .drawn import DrawnPath
from .interface import Drawn, TargetServer, Wanted

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, Engine

LISTED = 5  # log-probabilities in a greedy run: as many as a card shows

PROBE = (
    "The quick brown fox, 3.14 and 2,718: naïve façade?\n\tdef f(x):\n        return x**2\n"
    "«Привет», 你好, مرحبا, 🙂👍🏽 — it's don’t  (two  spaces)"
)
"""A text that tokenizers split differently."""


class RemoteTarget(RemoteModel):
    """The target of a `Pair` on a server: it has the attributes of a model, and no weights.

    server: the model on its server; `RemoteEngine` makes its passes. The server's abilities for the
        whole vocabulary are tested once, when a run first needs them.
    few: the number of log-probabilities after a prefix, up to `LISTED`, when it was attached.
    """

    training = False
    device = torch.device("cpu")  # where its distributions arrive
    dtype: Any = "unknown"

    def __init__(self, server: TargetServer, identity: Identity, vocab: int) -> None:
        self.server = server
        self.identity = identity
        self.vocab = vocab
        self.few = server.lists(vocab, min(LISTED, vocab))
        self.name_or_path = server.model
        self.config: Any = PretrainedConfig()
        self.config.vocab_size = vocab
        self.config.max_position_embeddings = identity.context
        self.generation_config = GenerationConfig()

    @cached_property
    def listed(self) -> int:
        """The most log-probabilities that the server gives after a prefix. Raises
        `ServerError`."""
        return self.server.lists(self.vocab, self.vocab)

    @cached_property
    def draws(self) -> bool:
        """Whether the server draws tokens and gives the probabilities of chosen tokens, under
        temperature, top-k and top-p. A server that speculates is not asked. Raises
        `ServerError`."""
        return not self.identity.speculates and self.server.can_draw(self.vocab)

    def can_generate(self) -> bool:
        """Return True: it is a causal language model."""
        return True

    def get_output_embeddings(self) -> None:
        """Return None: its output layer is not here."""

    def parameters(self) -> Iterator[Tensor]:
        """Return no parameters: their number is unknown."""
        return iter(())

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Return no modules: its layers are not here."""
        return iter(())

    def make_engine(self, vocab: int, hidden_states: bool) -> Engine:
        if hidden_states:
            raise PairError(
                "a head needs the target's hidden states, which a server does not return: choose "
                "another drafter."
            )
        return RemoteEngine(self, vocab)

    def pass_cost(self) -> NoReturn:
        raise PairError(
            "the cost of a pass on a server is unknown, so this policy cannot choose how much to "
            "draft: use the policy 'fixed' or 'heuristic'."
        )

    def header_fields(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        context = self.config.max_position_embeddings
        rate = None
        length = len(prompt_ids) + STREAMED
        if context is None or length <= context:
            with suppress(PairError, ServerError):  # the race needs no stream
                rate = self.server.streaming_rate(prompt_ids, STREAMED)
        return {"device": self.identity.software, "streaming_rate": rate}

    def listed_for(self, settings: Settings) -> int | None:
        """The number of log-probabilities after each prefix that an exact run needs.

        A greedy run needs the first choice; with top-k, k; otherwise all. None if the server does
        not list that many but draws, which is exact too. Raises `PairError` if it can do neither.
        """
        needed = min(settings.top_k or self.vocab, self.vocab)
        if settings.greedy or needed <= self.few:
            return self.few
        max_listed = self.listed
        if needed <= max_listed:
            shown = min(LISTED, max_listed)
            return min(self.vocab, max(needed, shown))
        if self.draws and settings.effective_verdict == "token":
            return None
        raise PairError(
            f"this server lists {max_listed} log-probabilities per token, too few for an exact run "
            f"above temperature 0: set top_k to a value from 1 to {max_listed}, start the server "
            "with all log-probabilities (vLLM: --max-logprobs -1), or start it without "
            "speculation and use the verdict 'token', for which it draws tokens itself (vLLM: "
            "--logprobs-mode processed_logprobs)."
        )


class RemoteEngine(BaseEngine):
    """A `RemoteTarget` that has read some tokens."""

    name = SERVER
    top_logprobs_only = True

    def __init__(self, target: RemoteTarget, vocab: int) -> None:
        self._target = target
        self._vocab = vocab
        self._ids: list[int] = []
        self._listed = LISTED
        self.device = target.device

    @property
    def length(self) -> int:
        return len(self._ids)

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        if layers is not None:
            raise PairError(
                "a target on a server cannot draft with its first layers: choose another drafter."
            )
        self.append(ids.tolist())
        lengths = range(self.length - keep + 1, self.length + 1)
        prefixes = self._prefixes(lengths)
        logprobs = self._target.server.logprobs(prefixes, self._listed, self._vocab)
        if temperature == 1.0:
            return logprobs
        return logprobs / torch.tensor(temperature)

    def append(self, ids: Sequence[int]) -> None:
        """Append `ids` to the cache without asking for their logits."""
        self._ids += ids

    def drawn(self, lengths: range, wanted: Wanted) -> list[list[Drawn]]:
        """The server's draws after the first n tokens in the cache, for each n of `lengths`."""
        return self._target.server.draws(self._prefixes(lengths), wanted)

    def path(self, run: RunContext) -> DecodingPath:
        # The server draws if it does not list enough log-probabilities.
        listed = self._target.listed_for(run.settings)
        self._listed = listed or LISTED
        self.top_logprobs_only = self._listed < self._vocab
        if listed is not None:
            return NumpyPath(self, run)
        if run.other_rule is not None:
            raise PairError(
                "a benchmark of speed needs whole distributions, and this server does "
                "not list them: start it with all log-probabilities (vLLM: "
                "--max-logprobs -1)."
            )
        return DrawnPath(self, run)

    def take_round_fields(self) -> dict[str, Any]:
        return self._target.server.take_round_fields()

    def rollback(self, length: int) -> None:
        del self._ids[length:]

    def _prefixes(self, lengths: range) -> list[list[int]]:
        return [self._ids[:length] for length in lengths]


def remote_target(address: ServerAddress, model: str, tokenizer: Any) -> RemoteTarget:
    """The target with this name on a server, after a check that it has the vocabulary of
    `tokenizer`.

    Raises `ServerError`, and `PairError` if it cannot be a target or has another tokenizer.
    """
    server = Server(address)
    identity = identity_of(server, model)
    vocab = max(tokenizer.get_vocab().values()) + 1
    target_server: TargetServer = Completions(server, model)
    if identity.engine == LLAMA_CPP:
        target_server = LlamaTarget(server, model)
    target = RemoteTarget(target_server, identity, vocab)
    check_tokenizer(target.server, tokenizer, vocab)
    target.generation_config.eos_token_id = tokenizer.eos_token_id
    return target


def check_tokenizer(server: TargetServer, tokenizer: Any, vocab: int) -> None:
    """Raise `PairError` if the server splits or spells text differently from `tokenizer`."""
    probe_ids = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    splits_alike = server.tokenize(PROBE) == list(probe_ids)
    all_ids = sorted(tokenizer.get_vocab().values())
    if not splits_alike or server.detokenize(all_ids) != tokenizer.decode(all_ids):
        raise PairError(
            f"{server.model} on {server.server.shown} and the draft have different tokenizers (the "
            f"draft's vocabulary has {vocab} tokens): choose a draft of the target's family."
        )
