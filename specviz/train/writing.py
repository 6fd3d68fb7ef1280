"""Texts that a model writes after many prompts at once, to train or to judge a draft on."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig

from ..core.model_facts import logit_width
from ..core.pair import Pair
from .files import save_array

Ids: TypeAlias = Sequence[int]


def key_of(*values: Any) -> str:
    """A short hash of the values that a text or a checkpoint depends on, for its file's name."""
    text = json.dumps(values, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Writing:
    """The options of written texts."""

    new_tokens: int  # the most for each text
    ends: tuple[int, ...] = ()  # ids after which a text ends; they belong to it
    never: tuple[int, ...] = ()  # ids that are never written
    pad: int = 0  # an id for padding, which no model sees

    @classmethod
    def of(cls, pair: Pair, new_tokens: int) -> Writing:
        """The options for texts of a pair's target: its own end ids, and only ids that can be
        emitted."""
        ends = tuple(sorted(pair.eos_ids))
        never = tuple(range(pair.vocab, logit_width(pair.target)))
        pad = ends[0] if ends else 0
        return cls(new_tokens, ends, never, pad)

    def config(self, temperature: float) -> GenerationConfig:
        """The config for transformers' `generate`: plain sampling, or greedy at temperature 0."""
        if temperature > 0:
            drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        else:
            drawing = {"do_sample": False}
        return GenerationConfig(
            max_new_tokens=self.new_tokens,
            eos_token_id=list(self.ends) or None,
            suppress_tokens=list(self.never) or None,
            pad_token_id=self.pad,
            repetition_penalty=1.0,
            **drawing,
        )


@torch.inference_mode()
def write(
    model: Any, prompts: Sequence[Ids], writing: Writing, *, temperature: float, seed: int
) -> list[list[int]]:
    """Continue every prompt; returns prompts with their continuations, as lists of ids.

    The texts depend on the model, its device, the prompts of this call and the seed.
    """
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), writing.pad)
    is_filled = torch.zeros((len(prompts), width), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        begin = width - len(prompt)
        ids[row, begin:] = torch.tensor(prompt)
        is_filled[row, begin:] = 1
    forked = []
    if model.device.type == "cuda":
        forked = [model.device]
    with torch.random.fork_rng(forked), _without_defaults(model):
        torch.manual_seed(seed)
        output = model.generate(
            ids.to(model.device),
            attention_mask=is_filled.to(model.device),
            generation_config=writing.config(temperature),
        )
    continuations = output[:, width:].tolist()
    texts = []
    for prompt, continuation in zip(prompts, continuations, strict=True):
        written = _up_to_end(continuation, writing.ends)
        texts.append([*prompt, *written])
    return texts


def _up_to_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    """The ids up to the first end, which is included."""
    for position, token_id in enumerate(ids):
        if token_id in ends:
            return ids[: position + 1]
    return ids


@contextmanager
def _without_defaults(model: Any) -> Iterator[None]:
    """Remove the model's own sampling options inside the block, where they would fill unset
    ones."""
    config = model.generation_config
    model.generation_config = GenerationConfig()
    use_cache = model.config.use_cache
    model.config.use_cache = True
    try:
        yield
    finally:
        model.generation_config = config
        model.config.use_cache = use_cache


def marked_rows(prompts: Sequence[Ids], texts: Sequence[Ids], width: int, pad: int) -> np.ndarray:
    """Texts as int32 [rows, 2, width]: their ids, padded on the right, and marks of 1 at the ids
    after the prompt."""
    rows = np.zeros((len(texts), 2, width), np.int32)
    rows[:, 0] = pad
    for row, prompt, text in zip(rows, prompts, texts, strict=True):
        row[0, : len(text)] = text
        row[1, len(prompt) : len(text)] = 1
    return rows


def inputs_and_labels(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split marked rows [rows, 2, n + 1] into inputs [rows, n], and bool [rows, n], whether the
    prediction after each input counts. Columns after the last one that counts are left out."""
    ids = batch[:, 0, :-1]
    counted = batch[:, 1, 1:].bool()
    length = 1
    if counted.any():
        counted_columns = counted.any(0).nonzero()
        length = int(counted_columns.max()) + 1
    return ids[:, :length], counted[:, :length]


class WrittenRows:
    """Marked rows in a new order in each epoch.

    A batch depends only on the seed and the number of tokens trained before.
    """

    def __init__(self, rows: np.ndarray, seed: int) -> None:
        self.rows = rows  # [rows, 2, length + 1]
        self.seed = seed

    def batch(self, seen: int, count: int) -> torch.Tensor:
        """The next `count` marked rows after `seen` trained tokens, [count, 2, length + 1], the
        shortest first: rows that are read together then have similar lengths."""
        row_inputs = int(self.rows.shape[2]) - 1  # padding included
        first = seen // row_inputs
        picked: list[np.ndarray] = []
        for index in range(first, first + count):
            epoch, position = divmod(index, len(self.rows))
            if not picked or position == 0:
                order = self._order(epoch)
            picked.append(self.rows[order[position]])
        picked.sort(key=_last_mark)
        batch = np.stack(picked).astype(np.int64)
        return torch.from_numpy(batch)

    def _order(self, epoch: int) -> np.ndarray:
        """The order of the rows in an epoch."""
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.rows))


def _last_mark(row: np.ndarray) -> int:
    """The column of a row's last mark; 0 if it has none. row: [2, length + 1]."""
    (marked,) = row[1].nonzero()
    return int(marked.max(initial=0))


def write_rows(
    model: Any,
    prompts: Callable[[int], Sequence[Ids]],
    writing: Writing,
    args: argparse.Namespace,
    *,
    folder: Path,
    chunks: int,
    width: int,
) -> np.ndarray:
    """Let the model write text, as marked rows [rows, 2, width].

    prompts: the prompts of a chunk; each of the temperatures in `args` is used for an equal part
    of them. Each finished chunk is a file in `folder`, so a resumed run writes only the missing
    ones.
    """
    temperatures = args.written_temperatures
    seed = args.seed
    pieces = []
    for chunk in tqdm(range(chunks), desc="target writes", unit="chunk"):
        path = folder / f"{seed}-{chunk:05d}.npy"
        if not path.exists():
            first_seed = (seed * 1_000_003 + chunk) * len(temperatures)
            rows = _written_chunk(
                model, prompts(chunk), writing, temperatures, first_seed=first_seed, width=width
            )
            save_array(path, rows)
        pieces.append(np.load(path))
    return np.concatenate(pieces)


def _written_chunk(
    model: Any,
    prompts: Sequence[Ids],
    writing: Writing,
    temperatures: Sequence[float],
    *,
    first_seed: int,
    width: int,
) -> np.ndarray:
    """Write after the prompts of one chunk, an equal part of them at each temperature."""
    rows = []
    for turn, temperature in enumerate(temperatures):
        part = prompts[turn :: len(temperatures)]
        if part:
            seed = first_seed + turn
            texts = write(model, part, writing, temperature=temperature, seed=seed)
            rows.append(marked_rows(part, texts, width, writing.pad))
    return np.concatenate(rows)
