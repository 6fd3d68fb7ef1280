"""Does a drafter or a verdict keep the target's distribution? A chi-square test on a model so small
that the probability of every text is known; and texts of any pair, drawn many times over."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..core.events import Round
from ..core.loop import decode
from ..errors import SettingsError
from ..kinds import drafter_names, verdict_names
from ..lanes import LANES, SPECULATIVE, Lane
from ..pairs.pair import Pair
from ..settings import RANGES, Settings
from .equivalence import Continuation, tail

WORDS = ("a", "b", "c", "d")
LENGTH = 3  # tokens of a text, so that there are 64 of them
PROMPT = (0, 1, 2, 0, 1, 3, 0, 1)  # it repeats itself, so that something is found in it
RUNS = 3000
LUCK = 1e-3  # a kept distribution gives a lower p-value once in a thousand times
FEWEST = 5.0  # expected texts of a cell

Text = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of `prove`. drafted: tokens that were drafted in all runs. statistic, degrees:
    chi-square and its degrees of freedom. p_value: the probability that texts of the target's own
    distribution differ from it at least as much."""

    runs: int
    drafted: int
    statistic: float
    degrees: int
    p_value: float

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against the target's distribution."""
        return self.p_value >= LUCK


def prove(name: str, runs: int = RUNS) -> Proof:
    """Test a drafter, or a verdict with a draft model, by name.

    Each of `runs` texts is drawn with a seed of its own and compared with the probabilities that
    follow from the target's logits (Pearson's test of fit). Raises `SpecvizError` if there is no
    such kind, or if it cannot draft for a pair of two small models.
    """
    if name in drafter_names():
        chosen = {"drafter": name}
    elif name in verdict_names():
        chosen = {"verdict": name}
    else:
        known = ", ".join((*drafter_names(), *verdict_names()))
        raise SettingsError(f"there is no drafter or verdict {name[:40]!r}: use one of {known}.")
    pair = Pair(target=_model(0), draft=_model(1), tokenizer=_tokenizer())
    base = {"gamma": LENGTH, "temperature": 1.0, "max_new_tokens": LENGTH, **chosen}
    seen: Counter[Text] = Counter()
    drafted = 0
    for seed in range(runs):
        own = Settings.from_dict({**base, "seed": seed})
        rounds = [r for r in decode(pair, PROMPT, own, SPECULATIVE) if isinstance(r, Round)]
        drafted += sum(len(r.drafted) for r in rounds)
        seen[tuple(t.id for r in rounds for t in r.emitted)] += 1
    statistic, degrees = chi_square(seen, law_of(pair), runs)
    p_value = tail(statistic, degrees)
    assert p_value is not None
    return Proof(runs, drafted, statistic, degrees, p_value)


def draw_continuations(
    pair: Pair, prompt: Sequence[int], settings: Settings, count: int, length: int, lane: Lane
) -> Iterator[Continuation]:
    """`count` independent continuations of `prompt`, each of at most `length` tokens.

    Raises `SpecvizError` subclasses. The generator may be abandoned at any point.
    """
    ids = pair.encode(list(prompt))
    for seed in _seeds(settings.seed, count, lane):
        own = replace(settings, max_new_tokens=length, seed=seed, stop=())
        events = decode(pair, ids, own, lane)
        tokens = [token for r in events if isinstance(r, Round) for token in r.emitted]
        yield Continuation(tuple(t.id for t in tokens), "".join(t.text for t in tokens))


def _seeds(seed: int, count: int, lane: Lane) -> list[int]:
    # No draw shares its seed with one of the other lane: lanes that draw with the same uniforms
    # would agree more than chance allows, and the test would find nothing.
    generator = torch.Generator().manual_seed(seed)
    most = int(RANGES["seed"][1])
    drawn = torch.randint(0, most, (len(LANES), count), generator=generator)
    return [int(value) for value in drawn[LANES.index(lane)].tolist()]


@torch.inference_mode()
def law_of(pair: Pair) -> dict[Text, float]:
    """The probability of every text of `LENGTH` tokens after the prompt, at temperature 1."""
    texts = list(product(range(len(WORDS)), repeat=LENGTH))
    ids = torch.tensor([[*PROMPT, *text] for text in texts])
    target: Any = pair.target
    steps = target(ids).logits[:, len(PROMPT) - 1 : -1].double().log_softmax(-1)
    chances = steps.gather(-1, torch.tensor(texts).unsqueeze(-1)).sum((1, 2)).exp()
    return dict(zip(texts, chances.tolist(), strict=True))


def chi_square(seen: Mapping[Text, int], law: Mapping[Text, float], runs: int) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; texts that are expected less than `FEWEST`
    times share one cell."""
    rare = [text for text, chance in law.items() if runs * chance < FEWEST]
    cells = [(seen.get(text, 0), runs * law[text]) for text in law if text not in set(rare)]
    if rare:
        cells.append((sum(seen.get(t, 0) for t in rare), runs * sum(law[t] for t in rare)))
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    return statistic, len(cells) - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `prove` to a parser."""
    parser.add_argument("kind", metavar="DRAFTER|VERDICT", help="what is tested, by name")
    parser.add_argument("--runs", type=int, default=RUNS, help="texts; default %(default)s")


def main(options: argparse.Namespace) -> int:
    """Print the p-value and what it says; 0 if the distribution is kept, else 1."""
    found = prove(options.kind, max(100, options.runs))
    print(
        f"{options.kind}: {found.runs} texts of {LENGTH} tokens, {found.drafted} drafted tokens; "
        f"chi-square {found.statistic:.1f} with {found.degrees} degrees of freedom, "
        f"p = {found.p_value:.3g}"
    )
    if found.kept:
        print("kept: nothing speaks against the target's own distribution.")
        return 0
    odds = f"{1 / found.p_value:,.0f}" if found.p_value > 1e-9 else "a billion or more"
    print(f"not kept: texts of the target's own distribution differ so once in {odds} tests.")
    return 1


def _model(seed: int) -> LlamaForCausalLM:
    """A random model whose weights vary so much that two seeds disagree about most tokens."""
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: LlamaForCausalLM = LlamaForCausalLM(config).eval()
    return model


def _tokenizer() -> Any:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words)
