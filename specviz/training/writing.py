"""Text that the target writes, many rows at a time, to train the draft on."""

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
    """Continue prompts `[rows, n]`; returns ids `[rows, n + new_tokens]`.

    temperatures: one for each row, `[rows]`; 0 is greedy. end_id is never written: after it the
    text would no longer depend on the prompt.
    """
    written = [prompts]
    cache = DynamicCache(config=model.config)
    ids, divisors = prompts, temperatures.clamp_min(1e-6)[:, None]
    for _ in range(new_tokens):
        output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = output.logits[:, -1].float()  # [rows, vocab]
        logits[:, end_id] = -torch.inf
        noise = torch.empty_like(logits).exponential_(generator=generator)
        # argmax(p / noise) with exponential noise is a sample of p, as in Gumbel-max sampling;
        # without noise it is the greedy choice.
        scores = logits / divisors - torch.where(temperatures[:, None] > 0, noise.log(), 0.0)
        ids = scores.argmax(dim=-1, keepdim=True)
        written.append(ids)
    return torch.cat(written, dim=1)


class WrittenRows:
    """Rows of text of one length, in a new order in each epoch.

    A batch depends only on the seed and the number of tokens trained before.
    """

    def __init__(self, rows: np.ndarray, seed: int) -> None:
        self.rows = rows  # [rows, length + 1]
        self.seed = seed

    def batch(self, length: int, seen: int, rows: int) -> torch.Tensor:
        """The next batch after `seen` trained tokens: about `rows * length` ids, in rows of the
        text's own length + 1."""
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
    """At least `total_tokens` tokens of text that the model writes: uint16 ids `[.., length + 1]`.

    prompts: from (chunk, rows) to the prompts `[rows, n]` of one chunk. temperatures: used in turn
    for the rows of a chunk. Each finished chunk is a file in `folder`, so a resumed run writes only
    the missing chunks.
    """
    chunks = max(1, -(-total_tokens // (rows * length)))
    by_row = torch.tensor([temperatures[row % len(temperatures)] for row in range(rows)])
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
                temperatures=by_row.to(model.device),
                end_id=end_id,
                generator=generator,
            )
            save_array(path, ids.cpu().numpy().astype(np.uint16))
        pieces.append(np.load(path))
    return np.concatenate(pieces)
