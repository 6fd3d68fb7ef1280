"""What several kinds of training make of the same options of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeVar

from ..errors import SpecvizError
from .loop import LoopOptions
from .schedule import Schedule

Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """The numbers in "1,2,3". Raises `SpecvizError` with the name of the option."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecvizError(f"{option} is {text!r}: give numbers separated by commas.") from error


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
