"""Does a drafter or a verdict keep the target's distribution? A chi-square test on a model so small
that the probability of every text is known; and texts of any pair, drawn many times over."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import torch

from ..base.errors import SettingsError
from ..core.events import emitted_tokens
from ..core.lanes import LANES, SPECULATIVE, Lane
from ..core.pair import Pair
from ..core.registry import drafter_names, verdict_names
from ..core.settings import RANGES, Settings
from ..runs.result import baseline, speculate
from ..sides.heads.untrained import new_head
from .equivalence import SIGNIFICANCE, Continuation, Outcome, chi_square, tail
from .random_models import CPU, numbers, random_model
from .shapes import Size

WORDS = 4  # of the vocabulary
LENGTH = 3  # tokens of a text, so that there are 64 of them
SIZE = Size(
    vocab_size=WORDS,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=False,
)
PROMPT = (0, 1, 2, 0, 1, 3, 0, 1)  # it repeats itself, so that n-gram drafters find a match
RUNS = 3000


class Proof(NamedTuple):
    """The result of `prove`.

    drafted: the number of drafted tokens in all runs.
    statistic, degrees: chi-square and its degrees of freedom.
    p_value: the probability that texts of the target's own distribution differ from it at least as
        much.
    """

    runs: int
    drafted: int
    statistic: float
    degrees: int
    p_value: float

    @property
    def kept(self) -> bool:
        """Whether the test does not reject the target's distribution."""
        return self.p_value >= SIGNIFICANCE


def prove(name: str, runs: int = RUNS, device: torch.device = CPU) -> Proof:
    """Test a drafter, or a verdict with a draft model, by name, on a device; heads only on a
    processor.

    Each of `runs` texts is drawn with a seed of its own and compared with the probabilities that
    follow from the target's logits (Pearson's test of fit). Raises `SpecvizError` if there is no
    such kind, or if it cannot draft for a pair of two small models and an untrained head.
    """
    settings = _settings_with(name)
    pair = _small_pair()
    law = law_of(pair)
    if device.type != CPU.type:
        target: Any = pair.target
        draft: Any = pair.draft
        pair = replace(pair, target=target.to(device), draft=draft.to(device), head=None)
    drawn: Counter[Outcome] = Counter()
    drafted = 0
    for seed in range(runs):
        rounds = list(speculate(pair, PROMPT, settings, seed=seed))
        drafted += sum(len(round_.drafted) for round_ in rounds)
        text = tuple(token.id for token in emitted_tokens(rounds))
        drawn[text] += 1
    statistic, degrees = chi_square(drawn, law, runs)
    p_value = tail(statistic, degrees)
    assert p_value is not None
    return Proof(
        runs=runs,
        drafted=drafted,
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
    )


def _settings_with(name: str) -> Settings:
    """The settings of the texts, with the drafter or the verdict of this name."""
    settings = Settings(gamma=LENGTH, temperature=1.0, max_new_tokens=LENGTH)
    if name in drafter_names():
        return replace(settings, drafter=name)
    if name in verdict_names():
        return replace(settings, verdict=name)
    known = ", ".join((*drafter_names(), *verdict_names()))
    raise SettingsError(f"there is no drafter or verdict {name[:40]!r}: use one of {known}.")


def _small_pair() -> Pair:
    """Two small models and an untrained head."""
    target = _varied_model(seed=0)
    draft = _varied_model(seed=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        head = new_head(target, (1, 2), torch.arange(WORDS)).eval()
    return Pair(target=target, draft=draft, head=head, tokenizer=numbers(WORDS))


def _varied_model(seed: int) -> Any:
    """A model whose weights vary so much that two of them disagree about most tokens."""
    return random_model(SIZE, seed=seed, initializer_range=0.3, head_dim=32)


def draw_continuations(
    pair: Pair, prompt: Sequence[int], settings: Settings, count: int, length: int, lane: Lane
) -> Iterator[Continuation]:
    """`count` independent continuations of `prompt`, each of at most `length` tokens. Raises
    `SpecvizError`."""
    # No draw shares its seed with one of the other lane: lanes that draw with the same uniforms
    # would agree more than chance allows, and the test would find nothing.
    generator = torch.Generator().manual_seed(settings.seed)
    _, max_seed = RANGES["seed"]
    shape = (len(LANES), count)
    seeds = torch.randint(0, int(max_seed), shape, generator=generator)
    decode = speculate if lane == SPECULATIVE else baseline
    for seed in seeds[LANES.index(lane)].tolist():
        settings_of_draw = replace(settings, max_new_tokens=length, seed=seed, stop=())
        rounds = decode(pair, list(prompt), settings_of_draw)
        tokens = emitted_tokens(rounds)
        ids = tuple(token.id for token in tokens)
        text = "".join(token.text for token in tokens)
        yield Continuation(ids, text)


@torch.inference_mode()
def law_of(pair: Pair) -> dict[Outcome, float]:
    """The probability of every text of `LENGTH` tokens after the prompt, at temperature 1."""
    texts = list(product(range(WORDS), repeat=LENGTH))
    ids = torch.tensor([[*PROMPT, *text] for text in texts])  # [texts, prompt + LENGTH]
    target: Any = pair.target
    logits = target(ids).logits[:, len(PROMPT) - 1 : -1]  # [texts, LENGTH, vocab]
    log_probabilities = logits.double().log_softmax(-1)
    text_ids = torch.tensor(texts).unsqueeze(-1)
    of_tokens = log_probabilities.gather(-1, text_ids)
    probabilities = of_tokens.sum((1, 2)).exp()  # [texts]
    return dict(zip(texts, probabilities.tolist(), strict=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `prove` to a parser."""
    parser.add_argument("kind", metavar="DRAFTER|VERDICT", help="the name of what to test")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="number of texts; default %(default)s"
    )


def main(options: argparse.Namespace) -> int:
    """Print the p-value and its meaning; returns 0 if the distribution is kept, else 1."""
    proof = prove(options.kind, max(100, options.runs))
    print(
        f"{options.kind}: {proof.runs} texts of {LENGTH} tokens, {proof.drafted} drafted tokens; "
        f"chi-square {proof.statistic:.1f} with {proof.degrees} degrees of freedom, "
        f"p = {proof.p_value:.3g}"
    )
    if proof.kept:
        print("kept: the texts are consistent with the target's own distribution.")
        return 0
    odds = "a billion or more"
    if proof.p_value > 1e-9:
        odds = f"{1 / proof.p_value:,.0f}"
    print(
        "not kept: texts from the target's own distribution would differ this much once in "
        f"{odds} tests."
    )
    return 1
