"""Training of a head on any target that loads, in the published EAGLE-3 format: `train --head
TARGET`.

The head learns from text that the target writes itself. A target that was tuned for chat writes
the questions too: it continues the open user turn of its template. With `--corpus` it also works
on passages of books, and `--text` adds texts that another engine wrote with the same target.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..base.errors import PairError, SpecvizError
from ..base.options import real, whole
from ..base.text_lines import lines_of
from ..core.model_facts import logit_width, text_config
from ..core.pair import Pair, checked_pair
from ..files.checksums import write_checksums
from ..files.memory import device_memory
from ..pairs.load import load_pair
from ..pairs.spec import NO_DRAFT
from ..sides.heads.eagle import Head
from ..sides.heads.untrained import new_head
from .files import digest
from .head import (
    STEPS,
    ChainLoss,
    KeptStates,
    StateRows,
    chain_acceptance,
    frequent_tokens,
    save_head,
)
from .loop import Training, on_text, train
from .needs import check_need, head_need
from .openings import Openings
from .writing import Writing, WrittenRows, key_of, marked_rows, write_rows

HELD_OUT = 50  # one in 50 rows is held out
MAX_HELD_OUT = 64  # rows
LABELS_AT = (0.0, 0.7)  # temperatures at which acceptance is shown
EPOCHS = 4  # passes over the text, if no budget is given
RESULT = "training.json"  # next to the saved head


def add_head_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the options of `--head`."""
    add = group.add_argument
    add("--head", metavar="TARGET", help="a hub id, a folder, a GGUF file or the name of a pair")
    add(
        "--corpus",
        type=Path,
        metavar="FOLDER",
        help="a folder of books as .txt files, for tasks on passages",
    )
    text = "texts that the target has written: JSONL with prompt and ids, lists of its token ids"
    add("--text", type=Path, nargs="*", default=[], metavar="FILE", help=text)
    add("--head-minutes", type=float, default=0.0, help="training time of the head")
    add("--head-steps", type=int, default=0, help="training steps of the head, instead of minutes")
    add(
        "--head-tokens",
        type=whole(2),
        default=8192,
        help="number of tokens that the head can draft",
    )
    add("--matrix-rate", type=real(0), default=0.01, help="Muon's peak learning rate")
    add("--embedding-rate", type=real(0), default=0.003, help="AdamW's peak learning rate")
    add("--row-tokens", type=int, default=512, help="the most tokens of a question with its answer")


def make_head(args: argparse.Namespace) -> None:
    """Let the target write, train a head on the text and save it. Raises `SpecvizError`."""
    if args.row_tokens < 2 * args.new_tokens:
        raise SpecvizError("--row-tokens is too small: use at least twice --max-new-tokens.")
    name = f"{args.head.removesuffix(f'+{NO_DRAFT}')}+{NO_DRAFT}"
    pair = checked_pair(load_pair(name, device=args.device or None))
    _check_target(pair.target)
    HeadTraining(args, pair).run()


def _check_target(target: Any) -> None:
    config = text_config(target)
    body = getattr(target, "model", None)
    if not all(hasattr(body, part) for part in ("layers", "embed_tokens", "norm")):
        raise PairError(
            f"the target is a {type(target).__name__}, whose layers are not arranged as Llama's: "
            "choose a target of the Llama family."
        )
    if getattr(config, "final_logit_softcapping", None):
        raise PairError(
            "the target caps its logits, which training a head does not support: "
            "choose another target."
        )


class HeadTraining:
    """One training of a head on a loaded target."""

    def __init__(self, args: argparse.Namespace, pair: Pair) -> None:
        self.args = args
        self.pair = pair
        target: Any = pair.target
        self.target = target.requires_grad_(False)
        self.writing = Writing.of(pair, args.new_tokens)

    @cached_property
    def text_key(self) -> str:
        """The name of the target's written text: a hash of what it depends on. More text is added
        to that of earlier runs."""
        args = self.args
        options = (
            asdict(self.writing),
            args.written_temperatures,
            args.write_rows,
            args.row_tokens,
        )
        prompts = _sizes(args.prompts)
        corpus = _sizes(args.corpus)
        return key_of(digest(self.target), options, prompts, corpus)

    @cached_property
    def made_by(self) -> str:
        """The name of the checkpoint: a hash of what it depends on."""
        args = self.args
        texts = [_sizes(path) for path in args.text]
        return key_of(self.text_key, texts, args.written_tokens, args.seed)

    def run(self) -> None:
        """Write text, train, save and report."""
        args = self.args
        rows = self._rows()
        learnt, held_out = _split(rows)
        head = self._new_head(rows)
        self._check_memory(head)
        reader = StateRows(self.target, head.config.states)
        states = KeptStates(reader, learnt, args.work / f"states-{self.made_by}")
        loss = ChainLoss(self.target, head, states)

        def report(trained: Head) -> str:
            save_head(trained, args.output)
            return shown(self._acceptance(trained, held_out))

        source = WrittenRows(numbered(learnt), args.seed)
        training = self._training(head, len(learnt))
        spent = train(head, source.batch, loss, training, report)
        save_head(head, args.output)
        acceptance = self._acceptance(head, held_out)
        result = {
            "target": args.head,
            "texts": len(rows),
            "written_tokens": int(rows[:, 1].sum()),
            "acceptance_by_step": acceptance,
            "spent": asdict(spent),
        }
        result_text = json.dumps(result, indent=1) + "\n"
        (args.output / RESULT).write_text(result_text, encoding="utf-8")
        write_checksums(args.output)
        print(
            f"{args.output}: {spent.step} steps in {spent.seconds / 60:.1f} min, "
            f"{shown(acceptance)}\n"
            f"race with --pair '{args.head}+{args.output}'"
        )

    def _new_head(self, rows: np.ndarray) -> Head:
        """An untrained head for the most frequent tokens of the text."""
        vocab = logit_width(self.target)
        ids = rows[:, 0]
        is_written = rows[:, 1].astype(bool)
        written = ids[is_written]
        count = min(self.args.head_tokens, vocab)
        targets = frequent_tokens(written, vocab, count)
        share = np.isin(written, targets.numpy()).mean()
        print(
            f"{len(rows)} texts with {len(written)} tokens that the target wrote; the head can "
            f"draft {len(targets)} tokens, {share:.1%} of the written ones",
            flush=True,
        )
        layers = text_config(self.target).num_hidden_layers
        head = new_head(self.target, _read_layers(layers), targets)
        nn.Module.to(head, self.pair.device)
        assert head.embedding is not None
        head.embedding = head.embedding.to(self.pair.device)
        return head

    def _check_memory(self, head: Head) -> None:
        args = self.args
        device = self.pair.device
        memory = device_memory(device)[0]
        need = head_need(
            self.target,
            head,
            rows=args.write_rows,
            width=args.row_tokens,
            tokens=max(args.micro_tokens, args.row_tokens),
            steps=STEPS,
        )
        check_need(need, memory, loaded=need.target)

    def _acceptance(self, head: Head, held_out: np.ndarray) -> dict[str, list[float]]:
        """`chain_acceptance` on held-out rows, by temperature."""
        acceptance = {}
        for temperature in LABELS_AT:
            by_step = chain_acceptance(self.target, head, held_out, temperature)
            acceptance[f"{temperature:g}"] = by_step
        return acceptance

    def _rows(self) -> np.ndarray:
        """Marked rows [rows, 2, row_tokens + 1]: of the files, and of newly written text."""
        args = self.args
        width = self.args.row_tokens + 1
        pieces = []
        read_tokens = 0
        for path in args.text:
            piece = read_text(path, width, self.pair.vocab, self.writing.pad)
            pieces.append(piece)
            read_tokens += int(piece[:, 1].sum())
        missing_tokens = args.written_tokens - read_tokens
        if missing_tokens > 0:
            chunk_tokens = args.write_rows * args.new_tokens
            written = write_rows(
                self.target,
                Openings(self.pair, args).chunk,
                self.writing,
                args,
                folder=args.work / f"text-{self.text_key}",
                chunks=ceil(missing_tokens / chunk_tokens),
                width=width,
            )
            pieces.append(written)
        rows: np.ndarray = np.concatenate(pieces)
        written_tokens = rows[:, 1].sum(1)  # of each row
        rows = rows[written_tokens > 1]
        if len(rows) < 4:
            raise SpecvizError(f"only {len(rows)} texts were written: increase --written-tokens.")
        return rows

    def _training(self, head: Head, rows: int) -> Training:
        args = self.args
        schedule = on_text(
            args,
            rows,
            args.row_tokens,
            epochs=EPOCHS,
            minutes=args.head_minutes,
            steps=args.head_steps,
        )
        checkpoint = args.work / f"head-{self.made_by}-{args.head_tokens}.pt"
        matrices = nn.ModuleList([head.midlayer, head.fc])
        return Training(args, schedule, checkpoint, "head learns", muon=matrices)


def _split(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows to learn from, and those held out."""
    interval = max(HELD_OUT, ceil(len(rows) / MAX_HELD_OUT))
    is_held_out = np.arange(len(rows)) % interval == 0
    return rows[~is_held_out], rows[is_held_out]


def _read_layers(layers: int) -> tuple[int, ...]:
    """The numbers of layers after which a head reads the target's states: two, the middle and the
    last."""
    second = min(2, layers)
    middle = max(1, (layers + 2) // 2)
    return tuple(sorted({second, middle, layers}))


def _sizes(path: Path | None) -> list[tuple[str, int]]:
    """The names and sizes in bytes of a file, or of the texts in a folder."""
    if path is None:
        return []
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
    return [(path.name, path.stat().st_size) for path in files]


def shown(acceptance: dict[str, list[float]]) -> str:
    """Acceptance by step for each temperature, in one line."""
    parts = []
    for temperature, by_step in acceptance.items():
        numbers = ", ".join(f"{share:.3f}" for share in by_step)
        parts.append(f"{numbers} at T {temperature}")
    return f"acceptance by step: {'; '.join(parts)}"


def numbered(rows: np.ndarray) -> np.ndarray:
    """Add a third plane to marked rows, filled with the row's number: [rows, 3, width]."""
    count, _, width = rows.shape
    numbers = np.arange(count, dtype=rows.dtype).reshape(count, 1, 1)
    plane = np.broadcast_to(numbers, (count, 1, width))
    return np.concatenate([rows, plane], 1)


def read_text(path: Path, width: int, vocab: int, pad: int) -> np.ndarray:
    """Read a file of JSON lines with `prompt` and `ids` as marked rows [rows, 2, width]. A text
    ends with its row, and one whose question fills the row is left out. Raises `SpecvizError`."""
    prompts: list[Sequence[int]] = []
    texts: list[Sequence[int]] = []
    try:
        for line in lines_of(path.read_text(encoding="utf-8-sig")):
            values = json.loads(line)
            prompt = list(map(int, values["prompt"]))
            ids = list(map(int, values["ids"]))
            text = [*prompt, *ids]
            if not all(0 <= token_id < vocab for token_id in text):
                raise ValueError("an id is not in the target's vocabulary")
            if len(prompt) < width - 1:
                prompts.append(prompt)
                texts.append(text[:width])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecvizError(
            f"{path.name} cannot be read ({type(error).__name__}: {error}): write a JSON object "
            "with prompt and ids, which are lists of token ids, on each line."
        ) from error
    if not texts:
        return np.zeros((0, 2, width), np.int32)
    return marked_rows(prompts, texts, width, pad)
