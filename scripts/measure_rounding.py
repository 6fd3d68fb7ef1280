"""The effect of inputs in 8 bits on a target: its next-token distributions compared with those in
fp32.

    python -m scripts.measure_rounding TARGET.gguf [--tokens 2000] [--server http://HOST:PORT]

The target reads texts and code of this repository twice, with products in fp32 and with those of
integers. For each kind the mean of the divergence KL(fp32 || 8 bits) of its distributions at
temperature 1 is printed, of the total variation, and how often the first choice is the same. A
server of llama.cpp with the same file is compared with the same fp32, by the log-probabilities that
it lists.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import torch
from torch import Tensor

from specviz import load_pair
from specviz.core.engine_choice import make_engine
from specviz.core.pair import Pair, checked_pair

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {
    "code": ("specviz/core/loop.py", "specviz/core/policy.py", "assets/page/run/store.js"),
    "text": ("docs/choosing.md", "docs/drafters.md", "docs/verdicts.md"),
}
PIECE = 250  # tokens that are read one after the other
FIRST = 16  # of a piece that are not counted, because they have little context
LISTED = 2_000  # ids whose log-probabilities a server lists
LARGEST_WAIT = 120.0  # seconds


class Divergence(NamedTuple):
    """How far another distribution is from that in fp32: KL in nats, total variation, and whether
    the likeliest id is the same."""

    kl: float
    variation: float
    same_choice: bool


def main() -> None:
    """Measure a file, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("target", type=Path)
    parser.add_argument(
        "--tokens", type=int, default=2000, help="number of tokens, half of them code"
    )
    parser.add_argument("--server", help="address of llama.cpp's server with the same file; slow")
    options = parser.parse_args()
    name = f"{options.target.resolve()}+none"
    exact = checked_pair(load_pair(name, products="fp32"))
    rounded = checked_pair(load_pair(name, products="int8"))
    print("| | tokens | KL, nats | total variation | first choice the same |")
    print("|---|---|---|---|---|")
    for kind, files in TEXTS.items():
        pieces = _pieces(exact.tokenizer, files, options.tokens // len(TEXTS))
        references = [_logits(exact, ids) for ids in pieces]
        others = [_logits(rounded, ids) for ids in pieces]
        divergences = []
        for reference, other in zip(references, others, strict=True):
            for p, q in zip(reference, other, strict=True):
                divergences.append(_divergence(p, q))
        _print_row(f"8 bits, {kind}", divergences)
        if not options.server:
            continue
        divergences = []
        for ids, reference in zip(pieces, references, strict=True):
            for count, p in enumerate(reference, FIRST):
                divergences.append(_listed_divergence(p, options.server, ids[:count]))
        _print_row(f"llama.cpp, {kind}", divergences)


def _pieces(tokenizer: Any, files: Sequence[str], tokens: int) -> list[list[int]]:
    """Pieces of the files with about this number of counted tokens."""
    ids: list[int] = []
    for name in files:
        text = (ROOT / name).read_text("utf-8")
        ids += tokenizer(text)["input_ids"]
    count = ceil(tokens / (PIECE - FIRST))
    whole_pieces = len(ids) // PIECE
    pieces = []
    for number in range(min(count, whole_pieces)):
        begin = number * PIECE
        pieces.append(ids[begin : begin + PIECE])
    return pieces


@torch.inference_mode()
def _logits(pair: Pair, ids: Sequence[int]) -> Tensor:
    """The logits [PIECE - FIRST, vocab] that follow each of the counted tokens."""
    engine = make_engine(pair.target, pair.vocab)
    logits = engine.forward(torch.tensor(ids), keep=PIECE - FIRST + 1)
    return logits[:-1].clone()


def _divergence(exact: Tensor, other: Tensor) -> Divergence:
    log_p = torch.log_softmax(exact.double(), 0)
    log_q = torch.log_softmax(other.double(), 0)
    p = log_p.exp()
    q = log_q.exp()
    kl = (p * (log_p - log_q)).sum()
    variation = (p - q).abs().sum() / 2
    return Divergence(
        kl=float(kl),
        variation=float(variation),
        same_choice=bool(exact.argmax() == other.argmax()),
    )


def _listed_divergence(exact: Tensor, server: str, prompt: Sequence[int]) -> Divergence:
    """The same of the distribution after a prompt that a server lists. The ids that it does not
    list count as one id."""
    listed = dict(_listed(server, prompt))
    ids = torch.tensor(list(listed))
    log_q = torch.tensor(list(listed.values())).double()
    log_p = torch.log_softmax(exact.double(), 0)[ids]
    p = log_p.exp()
    q = log_q.exp()
    rest_p = (1 - p.sum()).clamp(min=1e-12)
    rest_q = (1 - q.sum()).clamp(min=1e-12)
    kl_of_listed = (p * (log_p - log_q)).sum()
    kl_of_rest = rest_p * (rest_p / rest_q).log()
    difference_of_listed = (p - q).abs().sum()
    difference_of_rest = (rest_p - rest_q).abs()
    best = max(listed, key=lambda token: listed[token])
    return Divergence(
        kl=float(kl_of_listed + kl_of_rest),
        variation=float((difference_of_listed + difference_of_rest) / 2),
        same_choice=best == int(exact.argmax()),
    )


def _listed(server: str, prompt: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Ids and log-probabilities of the next token, from llama.cpp's own endpoint."""
    body = {
        "prompt": list(prompt),
        "n_predict": 1,
        "n_probs": LISTED,
        "temperature": 1.0,
        "cache_prompt": True,
    }
    reply = httpx.post(f"{server.rstrip('/')}/completion", json=body, timeout=LARGEST_WAIT)
    answer = reply.raise_for_status().json()
    first_token = answer["completion_probabilities"][0]
    for token in first_token["top_logprobs"]:
        logprob = token["logprob"]
        if logprob is not None and logprob > -1e30:
            yield token["id"], logprob


def _print_row(name: str, divergences: Sequence[Divergence]) -> None:
    count = len(divergences)
    kl = sum(divergence.kl for divergence in divergences) / count
    variation = sum(divergence.variation for divergence in divergences) / count
    same = sum(divergence.same_choice for divergence in divergences) / count
    print(f"| {name} | {count:,} | {kl:.5f} | {variation:.4f} | {same:.1%} |", flush=True)


if __name__ == "__main__":
    main()
