"""The training loop, with two optimizers and checkpoints to resume from."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..base.errors import SpecvizError
from .files import whole_file

Batches = Callable[[int, int], torch.Tensor]
"""(tokens trained before, rows) -> a batch: marked rows [rows, 2 or more, length + 1]
(`writing.marked_rows`)."""
Loss = Callable[[Any, torch.Tensor], torch.Tensor]
"""(model, batch) -> the differentiable mean loss in nats."""
ADAM: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0}
MUON: dict[str, Any] = {"weight_decay": 0.05, "adjust_lr_fn": "match_rms_adamw"}


@dataclass(frozen=True)
class Schedule:
    """A budget in steps or minutes, and a learning rate with warm-up, plateau and linear decay."""

    length: int  # tokens of a row
    minutes: float = 0.0
    steps: int = 0  # the budget if above 0; else the minutes are
    warmup_steps: int = 60
    decay: float = 0.6  # the last share of the budget, in which the rate falls to zero

    def progress(self, step: int, seconds: float) -> float:
        """The spent share of the budget, 0 to 1, by steps if they are limited, else by seconds."""
        if self.steps > 0:
            return min(1.0, step / self.steps)
        return min(1.0, seconds / (60 * self.minutes))

    def rate(self, step: int, progress: float) -> float:
        """The learning rate relative to its peak, 0 to 1."""
        rate = max(0.0, 1.0 - progress) / self.decay
        if self.warmup_steps:
            rate = min(rate, (step + 1) / self.warmup_steps)
        return min(1.0, rate)


@dataclass(frozen=True)
class Training:
    """The options of one training."""

    args: argparse.Namespace
    schedule: Schedule
    checkpoint: Path  # the file to continue from
    label: str  # shown next to the progress
    muon: torch.nn.Module | None = None  # Muon trains its matrices, AdamW all other weights


def on_text(
    args: argparse.Namespace, rows: int, length: int, *, epochs: int, minutes: float, steps: int
) -> Schedule:
    """The schedule of a training on `rows` rows of `length` tokens: `epochs` passes over them if
    neither minutes nor steps set a budget."""
    if steps == 0 and minutes <= 0:
        rows_per_step = max(1, args.batch_tokens // length)
        steps = max(1, epochs * rows // rows_per_step)
    return Schedule(
        length=length,
        minutes=minutes,
        steps=steps,
        warmup_steps=args.warmup_steps,
        decay=args.decay,
    )


@dataclass
class TrainingProgress:
    """The steps, tokens and seconds so far, over all processes of one training."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def train(
    model: Any,
    batches: Batches,
    loss: Loss,
    options: Training,
    report: Callable[[Any], str] | None = None,
) -> TrainingProgress:
    """Train `model` in place until the budget is spent; returns the progress.

    Continues from `options.checkpoint` if that file exists. report: called at each checkpoint, for
    a line to print. Raises `SpecvizError` if the loss is not finite, or if the checkpoint is of a
    model with another shape.
    """
    optimizers = _optimizers(model, options)
    spent = _restore(model, optimizers, options.checkpoint)
    schedule = options.schedule
    started_at = spent.step
    saved = time.monotonic()
    model.eval()  # without dropout, a resumed training equals an uninterrupted one
    with tqdm(total=100.0, desc=options.label, unit="%", mininterval=5, smoothing=0.05) as bar:
        while True:
            share = schedule.progress(spent.step, spent.seconds)
            if share >= 1.0:
                break
            began = time.monotonic()
            value, tokens = _step(model, batches, loss, optimizers, options, spent, share)
            elapsed = time.monotonic() - began
            spent.step += 1
            spent.tokens += tokens
            spent.seconds += elapsed
            _show(bar, share, value, tokens / elapsed, spent)
            if time.monotonic() - saved > 60 * options.args.checkpoint_minutes:
                _save(model, optimizers, spent, options.checkpoint)
                if report:
                    tqdm.write(f"step {spent.step}: {report(model)}", file=sys.stderr)
                saved = time.monotonic()
            steps_now = spent.step - started_at
            if options.args.stop_after and steps_now >= options.args.stop_after:
                break
    _save(model, optimizers, spent, options.checkpoint)
    return spent


def _optimizers(model: Any, options: Training) -> list[torch.optim.Optimizer]:
    args = options.args
    if options.muon is None:
        weights = _peaking(model.parameters(), args.rate)
        return [torch.optim.AdamW(weights, **ADAM)]
    if not hasattr(torch.optim, "Muon"):
        raise SpecvizError(
            "this version of torch lacks torch.optim.Muon, which training a head "
            "needs: install torch 2.9 or newer."
        )
    matrices = [weight for weight in options.muon.parameters() if weight.ndim == 2]
    matrix_ids = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in matrix_ids]
    muon = torch.optim.Muon(_peaking(matrices, args.matrix_rate), **MUON)
    adam = torch.optim.AdamW(_peaking(others, args.embedding_rate), fused=True, **ADAM)
    return [muon, adam]


def _peaking(weights: Iterable[Any], rate: float) -> list[dict[str, Any]]:
    """A group of weights whose peak learning rate is `rate`."""
    return [{"params": list(weights), "peak": rate}]


def _step(
    model: Any,
    batches: Batches,
    loss: Loss,
    optimizers: list[torch.optim.Optimizer],
    options: Training,
    spent: TrainingProgress,
    share: float,
) -> tuple[float, int]:
    """Make one update; returns the mean loss and the number of tokens."""
    length = options.schedule.length
    rows = max(1, options.args.batch_tokens // length)
    rows_per_part = max(1, options.args.micro_tokens // length)
    ids = batches(spent.tokens, rows).to(model.device)
    parts = ids.split(rows_per_part)
    value = 0.0
    for part in parts:
        counted = part[:, 1].sum()
        share_of_tokens = float(counted / ids[:, 1].sum())
        part_loss = loss(model, part) * share_of_tokens
        part_loss.backward()
        value += part_loss.item()
    if not math.isfinite(value):
        raise SpecvizError(
            f"the loss became {value} at step {spent.step}: lower the learning rate, remove the "
            f"checkpoint {options.checkpoint.name} and start again."
        )
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    factor = options.schedule.rate(spent.step, share)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    predicted_per_row = ids.shape[-1] - 1
    return value, len(ids) * predicted_per_row


def _show(bar: Any, share: float, value: float, rate: float, spent: TrainingProgress) -> None:
    bar.set_postfix_str(
        f"step {spent.step}, {spent.tokens / 1e6:.2f} M tokens, loss {value:.3f}, {rate:.0f} tok/s",
        refresh=False,
    )
    bar.update(100 * share - bar.n)


def _save(
    model: Any,
    optimizers: list[torch.optim.Optimizer],
    spent: TrainingProgress,
    path: Path,
) -> None:
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "spent": vars(spent),
    }
    with whole_file(path) as partial:
        torch.save(state, partial)


def _restore(model: Any, optimizers: list[torch.optim.Optimizer], path: Path) -> TrainingProgress:
    if not path.exists():
        return TrainingProgress()
    state = torch.load(path, map_location=model.device, weights_only=True)
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise SpecvizError(
            f"the checkpoint {path.name} is of a model of another shape: remove it or pass another "
            "--work folder."
        ) from error
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return TrainingProgress(**state["spent"])
