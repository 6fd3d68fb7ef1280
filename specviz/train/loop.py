"""The training loop, with two optimizers and checkpoints from which a killed process resumes."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from tqdm import tqdm
from transformers import LlamaForCausalLM

from ..errors import SpecvizError
from .export import whole_file
from .schedule import Schedule

Batches = Callable[[int, int, int, float], torch.Tensor]
"""From (window length, tokens trained before, rows, progress) to a batch: ids [rows, length + 1],
or marked rows [rows, 2, length + 1] (`writing.marked_rows`)."""
Loss = Callable[[Any, torch.Tensor], torch.Tensor]
"""From (model, batch) to the differentiable mean loss in nats."""


@dataclass(frozen=True)
class LoopOptions:
    """The options of one training."""

    schedule: Schedule
    checkpoint: Path
    batch_tokens: int = 8192
    micro_tokens: int = 8192  # tokens per forward pass; a batch may need several passes
    matrix_rate: float = 0.01
    embedding_rate: float = 0.003
    rate: float = 0.0  # above 0: AdamW with this rate for all weights, as for trained models
    weight_decay: float = 0.05
    checkpoint_minutes: float = 5.0
    stop_after: int = 0  # most steps in this process; 0 is no limit
    label: str = "training"


@dataclass
class TrainingProgress:
    """The steps, tokens and seconds so far, in all processes of one training."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def hidden_states(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """The last layer's output `[rows, length, width]`; products are in bf16 with fp32 sums."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden: torch.Tensor = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden.to(torch.bfloat16)


def head(model: LlamaForCausalLM) -> torch.Tensor:
    """The tied output matrix `[vocab, width]` in bf16; gradients flow to the embeddings."""
    weight: torch.Tensor = model.model.embed_tokens.weight
    return weight.to(torch.bfloat16)


def train(
    model: Any,
    batches: Batches,
    loss: Loss,
    options: LoopOptions,
    report: Callable[[Any], str] | None = None,
    layers: torch.nn.Module | None = None,
) -> TrainingProgress:
    """Train `model` in place until the budget is spent; returns what was spent.

    Continues from `options.checkpoint` if that file exists. report: called at each checkpoint, for
    a line to print. layers: the part whose matrices Muon trains, if not `model.model.layers`.
    Raises `SpecvizError` if the loss is not finite, or if the checkpoint is of a model with another
    shape.
    """
    optimizers = _optimizers(model, options, layers)
    spent = _restore(model, optimizers, options.checkpoint)
    schedule, started_at = options.schedule, spent.step
    saved = time.monotonic()
    model.eval()  # without dropout, a resumed training equals an uninterrupted one
    with tqdm(total=100.0, desc=options.label, unit="%", mininterval=5, smoothing=0.05) as bar:
        while (share := schedule.progress(spent.step, spent.seconds)) < 1.0:
            began = time.monotonic()
            value, tokens = _step(model, batches, loss, optimizers, options, spent, share)
            elapsed = time.monotonic() - began
            spent.step, spent.tokens = spent.step + 1, spent.tokens + tokens
            spent.seconds += elapsed
            _show(bar, share, value, tokens / elapsed, spent)
            if time.monotonic() - saved > 60 * options.checkpoint_minutes:
                _save(model, optimizers, spent, options.checkpoint)
                if report:
                    tqdm.write(f"step {spent.step}: {report(model)}", file=sys.stderr)
                saved = time.monotonic()
            if options.stop_after and spent.step - started_at >= options.stop_after:
                break
    _save(model, optimizers, spent, options.checkpoint)
    return spent


def _optimizers(
    model: Any, options: LoopOptions, layers: torch.nn.Module | None
) -> list[torch.optim.Optimizer]:
    """AdamW for all weights if `options.rate` is set; else Muon for the matrices of the layers, and
    AdamW for the embeddings and the norms."""
    if options.rate > 0:
        adam = torch.optim.AdamW(
            model.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        adam.param_groups[0]["peak"] = options.rate
        return [adam]
    if not hasattr(torch.optim, "Muon"):
        raise SpecvizError("Training needs torch 2.9 or newer, for torch.optim.Muon.")
    layers = model.model.layers if layers is None else layers
    inner = [p for p in layers.parameters() if p.ndim == 2]
    known = {id(p) for p in inner}
    others = [p for p in model.parameters() if id(p) not in known]
    muon = torch.optim.Muon(
        inner,
        lr=options.matrix_rate,
        weight_decay=options.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.AdamW(
        others, lr=options.embedding_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    for optimizer, peak in ((muon, options.matrix_rate), (adam, options.embedding_rate)):
        for group in optimizer.param_groups:
            group["peak"] = peak
    return [muon, adam]


def _step(
    model: Any,
    batches: Batches,
    loss: Loss,
    optimizers: list[torch.optim.Optimizer],
    options: LoopOptions,
    spent: TrainingProgress,
    share: float,
) -> tuple[float, int]:
    """One update; returns the mean loss and the number of tokens."""
    length = options.schedule.length(share)
    rows = max(1, options.batch_tokens // length)
    ids = batches(length, spent.tokens, rows, share).to(model.device)
    parts = ids.split(max(1, options.micro_tokens // length))
    value = 0.0
    for part in parts:
        mean = loss(model, part) * (_weight(part) / _weight(ids))
        mean.backward()
        value += mean.item()
    if not math.isfinite(value):
        raise SpecvizError(
            f"The loss became {value} at step {spent.step}: lower the learning rate, remove the "
            f"checkpoint {options.checkpoint.name} and start again."
        )
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    factor = options.schedule.rate(spent.step, share)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return value, len(ids) * (ids.shape[-1] - 1)


def _weight(batch: torch.Tensor) -> int:
    """How many predictions of a batch count, or its rows if all do."""
    return len(batch) if batch.ndim == 2 else int(batch[:, 1].sum())


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
            f"The checkpoint {path.name} was made with another shape: remove it or pass another "
            "--work folder."
        ) from error
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return TrainingProgress(**state["spent"])


Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """The numbers in "1,2,3". Raises `SpecvizError` with the name of the option."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecvizError(f"{option} is {text!r}: give numbers separated by commas.") from error


def text_options(
    args: argparse.Namespace,
    rows: int,
    length: int,
    *,
    epochs: int,
    minutes: float,
    steps: int,
    **others: Any,
) -> LoopOptions:
    """The options of a training on `rows` rows of `length` tokens, which passes over them `epochs`
    times if neither minutes nor steps say how long. others: as in `loop_options`."""
    default = 0 if minutes > 0 else max(1, epochs * rows // max(1, args.batch_tokens // length))
    return loop_options(
        args,
        minutes=minutes,
        steps=steps or default,
        lengths=(length,),
        shares=(1.0,),
        shortest=1,
        longest=length,
        **others,
    )


def loop_options(
    args: argparse.Namespace,
    *,
    minutes: float,
    steps: int,
    checkpoint: Path,
    label: str,
    rate: float = 0.0,
    **windows: Any,
) -> LoopOptions:
    """The options of one training.

    minutes, steps: its budget. rate: as in `LoopOptions`. windows: the other fields of `Schedule`,
    which say how long the windows are.
    """
    schedule = Schedule(
        minutes=minutes, steps=steps, warmup_steps=args.warmup_steps, decay=args.decay, **windows
    )
    return LoopOptions(
        schedule=schedule,
        checkpoint=checkpoint,
        batch_tokens=args.batch_tokens,
        micro_tokens=args.micro_tokens,
        matrix_rate=args.matrix_rate,
        embedding_rate=args.embedding_rate,
        rate=rate,
        checkpoint_minutes=args.checkpoint_minutes,
        stop_after=args.stop_after,
        label=label,
    )
