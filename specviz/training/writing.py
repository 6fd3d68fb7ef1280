"""Text that a model writes, many rows at a time: what a draft will meet when it races."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import DynamicCache, LlamaForCausalLM

from .corpus import save_array


@torch.no_grad()
def write(
    model: LlamaForCausalLM,
    prompts: torch.Tensor,
    *,
    new_tokens: int,
    temperatures: torch.Tensor,
    end_id: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """Continue prompts `[rows, n]`, each at its own temperature `[rows]` (0: the likeliest token).

    Returns ids `[rows, n + new_tokens]`. The end of text is never written: a row that started
    afresh would not be about its prompt any more.
    """
    written = [prompts]
    cache = DynamicCache(config=model.config)
    ids, heat = prompts, temperatures.clamp_min(1e-6)[:, None]
    for _ in range(new_tokens):
        output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = output.logits[:, -1].float()  # [rows, vocab]
        logits[:, end_id] = -torch.inf
        noise = torch.empty_like(logits).exponential_(generator=generator)
        # argmax(p / Exponential) draws from p; without noise it is the greedy choice.
        scores = logits / heat - torch.where(temperatures[:, None] > 0, noise.log(), 0.0)
        ids = scores.argmax(dim=-1, keepdim=True)
        written.append(ids)
    return torch.cat(written, dim=1)


class WrittenRows:
    """Rows of one length, visited in a new order each epoch; a pure function of what was seen."""

    def __init__(self, rows: np.ndarray, seed: int) -> None:
        self.rows = rows  # [rows, length + 1]
        self.seed = seed

    def batch(self, length: int, seen: int, rows: int) -> torch.Tensor:
        """Ids `[about rows * length tokens, own length + 1]` that follow `seen` trained tokens."""
        own = self.rows.shape[1] - 1
        first, count = seen // own, max(1, rows * length // own)
        picked: list[np.ndarray] = []
        for index in range(first, first + count):
            epoch, place = divmod(index, len(self.rows))
            if not picked or place == 0:
                order = np.random.default_rng((self.seed, epoch)).permutation(len(self.rows))
            picked.append(self.rows[order[place]])
        return torch.from_numpy(np.stack(picked).astype(np.int64))


def write_rows(
    model: LlamaForCausalLM,
    prompts: Callable[[int, int], torch.Tensor],
    *,
    folder: Path,
    total_tokens: int,
    length: int,
    rows: int,
    temperatures: tuple[float, ...],
    end_id: int,
    seed: int,
) -> np.ndarray:
    """At least `total_tokens` of the model's own text as ids `[rows, length + 1]`, uint16.

    `prompts(chunk, rows)` gives the openings `[rows, n]` of one chunk. Each finished chunk is a
    file in `folder`, so a resumed run writes only what is missing.
    """
    chunks = max(1, -(-total_tokens // (rows * length)))
    heat = torch.tensor([temperatures[row % len(temperatures)] for row in range(rows)])
    pieces = []
    for chunk in tqdm(range(chunks), desc="target writes", unit="chunk"):
        path = folder / f"{length}x{rows}-{seed}-{chunk:05d}.npy"
        if not path.exists():
            openings = prompts(chunk, rows).to(model.device)
            generator = torch.Generator(model.device).manual_seed(seed * 1_000_003 + chunk)
            ids = write(
                model,
                openings,
                new_tokens=length + 1 - openings.shape[1],
                temperatures=heat.to(model.device),
                end_id=end_id,
                generator=generator,
            )
            save_array(path, ids.cpu().numpy().astype(np.uint16))
        pieces.append(np.load(path))
    return np.concatenate(pieces)
