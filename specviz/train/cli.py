"""`python -m specviz train`: a pair from books (--corpus), a better draft for a target (--distill),
or a head on one (--head). All continue from the last checkpoint when the same command runs again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from ..errors import SpecvizError
from ..options import check_writable, listed, real, whole
from ..pairs.weights import checked_device
from .from_books import STAGES, train_on_books
from .from_prompts import distill
from .from_target import add_head_arguments, make_head
from .models import CONTEXT, PRESETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `train` to a parser."""
    add = parser.add_argument
    default = "a folder, default: assets/pair, or distilled-draft with --distill"
    add("--out", type=Path, metavar="FOLDER", dest="output", help=default)
    add("--work", type=Path, default=Path(".train"), help="where checkpoints are kept")
    add("--draft-minutes", type=real(0), default=0.0, help="training time of the draft")
    add("--draft-steps", type=int, default=0, help="steps of the draft, instead of minutes")
    add("--decay", type=float, default=0.6, help="last share of the budget, with a falling rate")
    add("--warmup-steps", type=int, default=60)
    add("--batch-tokens", type=int, default=8192, help="tokens per update")
    add("--micro-tokens", type=int, default=8192, help="tokens per forward pass")
    add("--written-tokens", type=whole(0), default=1_000_000, help="text that the target writes")
    temperatures = "at which it writes, in equal parts"
    add("--written-temperatures", type=listed(real(0, 10)), default="0,0.7,1", help=temperatures)
    add("--checkpoint-minutes", type=real(0), default=5.0)
    add("--stop-after", type=int, default=0, help="stop after so many steps, to resume later")
    add("--seed", type=int, default=0)
    add("--device", default="", help="cuda or cpu; by default cuda if there is a GPU")
    add("--threads", type=whole(0, 4096), default=0, help="CPU threads; 0 is torch's default")
    _add_books(parser.add_argument_group("a pair from books"))
    add_head_arguments(parser.add_argument_group("a head on a target, --head TARGET"))
    _add_distillation(parser.add_argument_group("a better draft for a target"))


def _add_books(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--corpus", type=Path, help="folder of .txt books, one file per book")
    add("--stage", choices=(*STAGES, "all"), default="all", help="what to train")
    add("--evaluate", action="store_true", help="do not train, evaluate the saved pair")
    add("--preset", choices=tuple(PRESETS), default="small", help="shapes and budgets")
    add("--held-out", default="", help="books to hold out: file names without .txt, by commas")
    add("--vocabulary", type=int, default=4096, help="pieces of the tokenizer")
    for name in ("target", "draft"):
        add(f"--{name}-layers", type=int, default=0, help=f"layers of the {name}")
        add(f"--{name}-width", type=int, default=0, help=f"width of the {name}, a multiple of 64")
    add(
        "--minutes", type=real(0), default=0.0, help="training time of the target, in all processes"
    )
    add("--steps", type=int, default=0, help="steps of the target, instead of minutes: repeatable")
    lengths = "window lengths in tokens, from first to last"
    add("--lengths", type=listed(whole(8, CONTEXT)), default="256,512,1024", help=lengths)
    add("--matrix-rate", type=real(0), default=0.01, help="Muon's peak learning rate")
    add("--embedding-rate", type=real(0), default=0.003, help="AdamW's peak learning rate")
    add("--switch", type=float, default=0.5, help="share of the draft's budget spent on books")


def _add_distillation(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--distill", metavar="TARGET", help="a hub id, a folder, or 'builtin'")
    add("--draft", help="the draft that learns: a hub id, a folder, or 'builtin'")
    add("--prompts", type=Path, help="lines of text, a JSON list, or JSONL with prompt or turns")
    add("--held-out-prompts", type=Path, help="for alpha; default: one in ten of --prompts")
    written = "that the target writes after a prompt"
    add("--max-new-tokens", type=whole(1), default=128, dest="new_tokens", help=written)
    add("--write-rows", type=whole(1), default=32, help="texts that it writes at once")
    own_text = "share of batches that the draft writes itself"
    add("--own-text", type=real(0, 1), default=0.0, help=own_text)
    add("--rate", type=real(0), default=3e-4, help="AdamW's peak learning rate for all weights")


def main(args: argparse.Namespace) -> None:
    """Train what the options say; raises `SpecvizError` for invalid options or files."""
    checked_device(args.device or None)
    if args.threads:
        torch.set_num_threads(args.threads)
    ways = (
        (args.distill, distill, "distilled-draft"),
        (args.head, make_head, "head"),
        (args.corpus, train_on_books, "assets/pair"),
    )
    train, folder = next(((do, usual) for asked, do, usual in ways if asked), (None, ""))
    if train is None:
        raise SpecvizError(
            "nothing says what to train: pass --corpus BOOKS for a pair from scratch, --head "
            "TARGET for a head, or --distill TARGET --draft DRAFT --prompts FILE for a better one."
        )
    args.output = args.output or Path(folder)
    check_writable(args.output, folder=True)
    train(args)
