"""`python -m specviz train`: a head on a target (--head), or a better draft for one (--distill).

Both continue from the last checkpoint when the same command runs again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from ..base.errors import SpecvizError
from ..base.options import check_writable, listed, real, whole
from ..files.devices import checked_device
from .from_prompts import distill
from .from_target import add_head_arguments, make_head


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `train` to a parser."""
    add = parser.add_argument
    default = "the folder to write; default: head or distilled-draft"
    add("--out", type=Path, metavar="FOLDER", dest="output", help=default)
    add("--work", type=Path, default=Path(".train"), help="folder of the checkpoints")
    add(
        "--decay",
        type=real(0.01, 1),
        default=0.6,
        help="share of the budget with a falling learning rate",
    )
    add("--warmup-steps", type=int, default=60)
    add("--batch-tokens", type=int, default=8192, help="tokens per update")
    add("--micro-tokens", type=int, default=8192, help="tokens per forward pass")
    add(
        "--prompts", type=Path, help="a file of prompts: text with one per line, JSON, JSONL or CSV"
    )
    written = "tokens that the target writes after each prompt"
    add("--max-new-tokens", type=whole(1), default=128, dest="new_tokens", help=written)
    add("--write-rows", type=whole(1), default=32, help="texts that the target writes at once")
    add(
        "--written-tokens",
        type=whole(0),
        default=1_000_000,
        help="tokens that the target writes in all",
    )
    temperatures = "temperatures of the target's texts, in equal shares"
    add("--written-temperatures", type=listed(real(0, 10)), default="0,0.7,1", help=temperatures)
    add("--checkpoint-minutes", type=real(0), default=5.0)
    add(
        "--stop-after", type=int, default=0, help="stop after this number of steps, to resume later"
    )
    add("--seed", type=int, default=0)
    add("--device", default="", help="cuda or cpu; by default cuda if there is a GPU")
    add("--threads", type=whole(0, 4096), default=0, help="CPU threads; 0 is torch's default")
    add_head_arguments(parser.add_argument_group("a head on a target, --head TARGET"))
    _add_distillation(parser.add_argument_group("a better draft for a target"))


def _add_distillation(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--distill", metavar="TARGET", help="a hub id, a folder, or 'builtin'")
    add("--draft", help="the draft to train: a hub id, a folder, or 'builtin'")
    add("--draft-minutes", type=real(0), default=0.0, help="training time of the draft")
    add(
        "--draft-steps", type=int, default=0, help="training steps of the draft, instead of minutes"
    )
    add(
        "--held-out-prompts",
        type=Path,
        help="prompts to measure alpha on; default: one in ten of --prompts",
    )
    add(
        "--rate",
        type=real(1e-8, 1),
        default=3e-4,
        help="AdamW's peak learning rate for all weights",
    )


def main(args: argparse.Namespace) -> None:
    """Run the training that the options ask for. Raises `SpecvizError` for invalid options or
    files."""
    checked_device(args.device or None)
    if args.threads:
        torch.set_num_threads(args.threads)
    if not (args.distill or args.head):
        raise SpecvizError(
            "there is nothing to train: pass --head TARGET for a head, or --distill TARGET --draft "
            "DRAFT --prompts FILE for a better draft."
        )
    if args.output is None:
        args.output = Path("distilled-draft") if args.distill else Path("head")
    check_writable(args.output, folder=True)
    if args.distill:
        distill(args)
    else:
        make_head(args)
