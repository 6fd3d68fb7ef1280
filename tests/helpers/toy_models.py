"""Tiny models and tokenizers for tests, and readers of the rounds of their runs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import hypothesis
import torch
from hypothesis.internal.conjecture import providers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import (
    GenerationMixin,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from specviz import Pair, Round, Settings
from specviz.core.events import EndReason
from specviz.core.lanes import Lane
from specviz.core.loop import decode
from specviz.core.protocols import Engine

# More threads make models of this size slower.
torch.set_num_threads(1)
# By default hypothesis parses the whole package in each process and draws constants from its
# source, so examples would change with every change of the source.
providers._get_local_constants = lambda: providers._local_constants  # which is empty


def examples(count: int) -> Any:
    """Settings for `hypothesis.given`: the same `count` examples each time, without a deadline."""
    return hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )


class MiniConfig(PreTrainedConfig):
    """Config of `MiniLM`.

    decay: the weight of each token relative to the one after it; with 0 the model is a Markov
    chain. spread: how much the logits vary.
    """

    model_type = "mini"
    vocab_size: int = 5
    hidden_size: int = 8
    num_hidden_layers: int = 1
    num_attention_heads: int = 1
    max_position_embeddings: int = 512
    decay: float = 0.5
    spread: float = 1.0


class Outputs(dict[str, Any]):
    """The outputs of a pass, without the checks of transformers' own output classes. These take
    longer than a pass of a model of this size."""

    __getattr__ = dict.get


class MiniLM(PreTrainedModel, GenerationMixin):
    """A very cheap causal language model that needs its cache: the logits depend on all tokens so
    far, each weighted by `decay` to the power of its distance."""

    config_class = MiniConfig

    def __init__(self, config: MiniConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._decay = config.decay  # a config looks long for what it has
        self._made: tuple[Any, Tensor] | None = None
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        wide = self.config.spread if module is self.head else 1.0
        nn.init.normal_(module.weight, std=wide / self.config.hidden_size**0.5)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def _weights(self, count: int, total: int, like: Tensor) -> Tensor:
        """The weight of each token in the states of the last `count` tokens, [count, total]."""
        key = self._decay, like.dtype, like.device
        if self._made is None or self._made[0] != key or len(self._made[1]) < 2 * total:
            with torch.inference_mode(False):  # a pass with gradients may use it too
                distance = torch.arange(2 * total, device=like.device).flip(0)
                weights = key[0] ** distance  # 1 for a token itself, and the last of them
                weights = torch.cat([weights, torch.zeros_like(weights)])  # none for later tokens
                self._made = key, weights.to(like.dtype)
        weights = self._made[1]
        itself = len(weights) // 2 - 1
        rows = weights[itself - total + 1 :].unfold(0, total, 1)  # of the last token, then before
        return rows[:count].flip(0)

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Any = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> Outputs:
        new = self.embedding(input_ids)[:, None]  # [batch, 1, new, hidden]
        seen = past_key_values.update(new, new, 0)[0] if past_key_values is not None else new
        count = new.shape[2]
        total = seen.shape[2]
        weights = self._weights(count, total, seen)
        hidden = (weights @ seen[:, 0])[:, -logits_to_keep:]
        return Outputs(logits=self.head(hidden), past_key_values=past_key_values)


def mini(vocab: int = 5, *, seed: int = 0, **config: Any) -> MiniLM:
    """Make a `MiniLM` with random weights."""
    torch.manual_seed(seed)
    return MiniLM(MiniConfig(vocab_size=vocab, **config)).eval()


def llama(vocab: int = 5, *, seed: int = 0, **config: Any) -> LlamaForCausalLM:
    """Make a random Llama. Its weights vary so much that two seeds disagree about most tokens."""
    torch.manual_seed(seed)
    defaults = dict(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **{**defaults, **config})).eval()


def relative(model: Any, *, noise: float, seed: int = 0) -> Any:
    """Copy `model` with noise on every weight: a draft that often agrees with `model`.

    noise: in standard deviations of each weight tensor.
    """
    twin = type(model)(model.config).to(model.dtype).eval()
    twin.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in twin.parameters():
            if weight.numel() == 1:
                continue  # it has no deviation
            weight += noise * weight.std() * torch.randn(weight.shape, generator=generator)
    return twin


def scripted(tokens: Sequence[int], vocab: int, *, seed: int = 0) -> MiniLM:
    """Make a Markov chain whose greedy continuation of `tokens[0]` is the rest of `tokens`.

    The ids must differ from each other. The text after the last one is random.
    """
    model = mini(vocab, seed=seed, hidden_size=vocab, decay=0.0)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(vocab))
        for before, after in itertools.pairwise(tokens):
            model.head.weight[after, before] = 12.0
    return model


def words(count: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer of the words "w0", "w1" and so on, with ids in that order."""
    return tokenizer_of({f"w{i}": i for i in range(count)})


def tokenizer_of(vocab: dict[str, int]) -> PreTrainedTokenizerFast:
    """Make a tokenizer with these words and ids."""
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


CORPUS = [
    "the cat sat on the mat",
    "a naïve café 日本語 日本",
    "🙂🙃 good 👩‍👩‍👧 day",
    "don't stop",
]


def byte_level(
    size: int = 300, *, special: Sequence[str] = (), corpus: Sequence[str] = CORPUS
) -> PreTrainedTokenizerFast:
    """Make a byte-level BPE, which may split characters outside ASCII over several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(text, special=True) for text in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def metaspace() -> PreTrainedTokenizerFast:
    """Make a BPE like SentencePiece's: "▁" for a space, single bytes for unknown characters."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text for text in CORPUS if text.isascii()], trainer)
    # The bytes must be ordinary pieces, because the decoder does not join special ones.
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = []
    trained["model"]["unk_token"] = None
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(trained)))


def pair_of(target: Any, draft: Any = None, *, tokenizer: Any = None, **fields: Any) -> Pair:
    """Make a pair over the words of the target's vocabulary, unless a tokenizer is given."""
    vocab = target.config.get_text_config().vocab_size
    return Pair(target=target, draft=draft, tokenizer=tokenizer or words(vocab), **fields)


def emitted_ids(rounds: Iterable[Round]) -> list[int]:
    """Collect the ids that these rounds emitted."""
    return [token.id for r in rounds for token in r.emitted]


def emitted_text(rounds: Iterable[Round]) -> str:
    """Join the text that these rounds emitted."""
    return "".join(token.text for r in rounds for token in r.emitted)


def generated(model: Any, prompt: Sequence[int], count: int, **options: Any) -> list[int]:
    """Generate the ids after `prompt` greedily with transformers."""
    ids = torch.tensor([list(prompt)])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=count,
        pad_token_id=0,
        **options,
    )
    return out[0, len(prompt) :].tolist()


def next_logits(engine: Engine, ids: Sequence[int]) -> Tensor:
    """Compute the engine's logits after `ids`, [vocab]; its cache is restored."""
    before = engine.length
    logits = engine.forward(torch.tensor(ids[before:]), keep=1)[0]
    engine.rollback(before)
    return logits


def finish(
    pair: Pair, prompt: Sequence[int], settings: Settings, lane: Lane = "speculative"
) -> tuple[list[Round], EndReason]:
    """Run a lane; returns its rounds and the reason of its end."""
    events: Any = decode(pair, pair.encode(list(prompt)), settings, lane)
    next(events)  # the seconds of the prefill
    rounds: list[Round] = []
    while True:
        try:
            rounds.append(next(events))
        except StopIteration as stop:
            return rounds, stop.value


def outcome_counts(rounds: Iterable[Round]) -> Counter[str]:
    """Count drafted tokens by outcome."""
    return Counter(token.outcome for r in rounds for token in r.drafted)


def outcomes(r: Round) -> str:
    """Write the outcomes of drafted tokens, a dash, and those of emitted tokens, a letter each."""
    return "-".join("".join(t.outcome[0] for t in tokens) for tokens in (r.drafted, r.emitted))


Load: TypeAlias = "Callable[[int, int], float]"
"""By how much other programs delay a pass, a factor: from the number of earlier passes, and of the
tokens that it reads."""


def no_load(passes: int, width: int) -> float:
    """A quiet machine."""
    return 1.0


class VirtualTime:
    """A clock that only passes of the models advance, so every time is known in advance.

    Use it as `monkeypatch.setattr("specviz.core.clock.time", virtual_time)`.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def charge(
        self, model: Any, seconds: float, *, first: float = 0.0, load: Load = no_load
    ) -> Any:
        """Make passes of `model` take `seconds`, the first one `first` more; returns `model`."""
        extra = [first]
        passes = itertools.count()

        def advance(_: object, args: Sequence[Tensor], options: dict[str, Any]) -> None:
            ids = args[0] if args else options["input_ids"]  # [batch, width]
            taken = seconds * load(next(passes), ids.shape[-1])
            self.seconds += taken + (extra.pop() if extra else 0.0)

        model.register_forward_pre_hook(advance, with_kwargs=True)
        return model
