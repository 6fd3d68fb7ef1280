"""A better draft for a target: the target continues prompts, and the draft learns from it.

The draft learns the target's whole distribution after every written token, by forward KL (Hinton
et al. 2015, arXiv 1503.02531).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import torch

from ..base.environment import BUILTIN
from ..base.errors import PairError, SpecvizError
from ..core.pair import Pair, checked_pair
from ..files.devices import checked_device
from ..files.memory import device_memory, loading_precision
from ..files.metadata import read_metadata
from ..pairs.load import load_pair
from ..pairs.models import meta_pair
from ..pairs.pair_files import named_files
from ..pairs.spec import NamedSpec
from ..runs.tables import markdown
from ..runs.uncertainty import Estimate, mean
from .files import digest, save_tokenizer, whole_folder
from .loop import Training, TrainingProgress, on_text, train
from .losses import logits_loss, text_alphas
from .needs import check_need, distillation_need
from .openings import PromptIds, in_turn, read_prompt_ids
from .writing import Writing, WrittenRows, key_of, write, write_rows

EPOCHS = 2  # passes over the written text, if no budget is given
RESULT = "distillation.json"  # next to the saved draft
RECORDED = ("new_tokens", "written_tokens", "written_temperatures", "rate", "seed")

Texts: TypeAlias = dict[float, list[list[int]]]
"""Temperature -> the held-out prompts, each with the target's continuation."""


def distill(args: argparse.Namespace) -> None:
    """Run the whole distillation and print alpha before and after.

    The draft is saved to `args.output` with its tokenizer. Raises `SpecvizError` for invalid
    options or files, for models that do not match, and for too little memory.
    """
    _check(args)
    builtin_target, builtin_draft, _ = named_files(NamedSpec(BUILTIN))
    target_name = args.distill
    if target_name == BUILTIN:
        target_name = builtin_target
    draft_name = args.draft
    if draft_name == BUILTIN:
        draft_name = builtin_draft
    target = read_metadata(target_name)
    draft = read_metadata(draft_name)
    meta = meta_pair([target, draft])  # raises if the two do not match
    if meta.shared is not None:
        raise PairError(
            "target and draft have different tokenizers, so their distributions cannot be compared "
            "token by token: choose a draft with the target's tokenizer."
        )
    devices = device_memory(checked_device(args.device or None))
    memory = max(devices, key=lambda memory: memory.free)
    device = torch.device(str(memory.device))
    prompts = read_prompt_ids(
        args.prompts, args.held_out_prompts, meta, new_tokens=args.new_tokens, seed=args.seed
    )
    width = prompts.width(args.new_tokens)
    need = distillation_need(
        target,
        draft,
        precision=loading_precision(target.config, device),
        rows=args.write_rows,
        width=width,
        tokens=max(args.micro_tokens, width),
    )
    check_need(need, memory)
    dtype = "float32" if device.type == "cpu" else None
    name = f"{target.source.name}+{draft.source.name}"
    pair = checked_pair(load_pair(name, dtype=dtype, device=device))
    Distillation(args, pair, prompts).run(draft.config.dtype or torch.float32)


def _check(args: argparse.Namespace) -> None:
    if not args.draft or not args.prompts:
        raise SpecvizError(
            "--distill needs a draft and prompts: pass --draft DRAFT and --prompts FILE."
        )
    if args.distill.startswith(("http://", "https://")):
        raise SpecvizError(
            "a target on a server returns no logits to learn from: name its hub id or its folder."
        )


class Distillation:
    """One distillation of a loaded pair."""

    def __init__(self, args: argparse.Namespace, pair: Pair, prompts: PromptIds) -> None:
        self.args = args
        self.pair = pair
        self.prompts = prompts
        target: Any = pair.target
        draft: Any = pair.draft_model
        self.target = target.requires_grad_(False)
        self.draft = draft.float()
        self.writing = Writing.of(pair, args.new_tokens)
        self.width = prompts.width(args.new_tokens)  # tokens of a row
        chunk_tokens = args.write_rows * args.new_tokens
        self.chunks = max(1, ceil(args.written_tokens / chunk_tokens))
        # A hash of everything that the written text depends on.
        self.text_key = key_of(
            digest(self.target),
            prompts.train,
            asdict(self.writing),
            args.written_temperatures,
            args.write_rows,
            args.seed,
        )

    def run(self, dtype: torch.dtype) -> None:
        """Write, learn, save and report. dtype: of the saved weights."""
        args = self.args
        prompts = self.prompts
        texts = self._held_out_texts()
        print(
            f"{len(prompts.train)} prompts to train on, {len(prompts.held_out)} held out, "
            f"{prompts.left_out} left out"
        )
        before = self._alphas(texts)
        for temperature, values in before.items():
            print(f"temperature {temperature:g}: alpha before {mean(values).shown(3)}", flush=True)
        spent = self._learn(WrittenRows(self._written(), args.seed))
        # The saved draft is measured: its weights are rounded to their own dtype.
        self.draft.to(dtype).float()
        alpha = _compared(before, self._alphas(texts))
        result = {
            "target": args.distill,
            "draft": args.draft,
            "prompts": len(prompts.train),
            "held_out": len(prompts.held_out),
            "alpha": alpha,
            "spent": spent,
            "options": {name: getattr(args, name) for name in RECORDED},
        }
        self._save(result, dtype)
        print("", *_alpha_lines(alpha), sep="\n")
        print(
            f"{args.output}: {spent.step} steps, {spent.tokens} tokens in "
            f"{spent.seconds / 60:.1f} min"
        )

    def _learn(self, rows: WrittenRows) -> TrainingProgress:
        args = self.args
        # On a processor, products in 16 bits are slower than in fp32 without special instructions.
        on_gpu = self.pair.device.type == "cuda"
        half = on_gpu and torch.cuda.is_bf16_supported()
        schedule = on_text(
            args,
            len(rows.rows),
            self.width - 1,
            epochs=EPOCHS,
            minutes=args.draft_minutes,
            steps=args.draft_steps,
        )
        key = key_of(self.text_key, digest(self.draft), args.rate, args.batch_tokens, self.chunks)
        checkpoint = args.work / f"distilled-{key}.pt"
        loss = logits_loss(self.target, self.pair.vocab, half=half)
        training = Training(args, schedule, checkpoint, "draft learns")
        return train(self.draft, rows.batch, loss, training)

    def _written(self) -> np.ndarray:
        return write_rows(
            self.target,
            lambda chunk: in_turn(self.prompts.train, chunk, self.args.write_rows),
            self.writing,
            self.args,
            folder=self.args.work / f"written-{self.text_key}",
            chunks=self.chunks,
            width=self.width,
        )

    def _held_out_texts(self) -> Texts:
        return {
            temperature: self._written_after(self.prompts.held_out, temperature)
            for temperature in self.args.written_temperatures
        }

    def _written_after(self, prompts: list[list[int]], temperature: float) -> list[list[int]]:
        """The prompts, each with the target's continuation."""
        rows = self.args.write_rows
        texts: list[list[int]] = []
        for first in range(0, len(prompts), rows):
            texts += write(
                self.target,
                prompts[first : first + rows],
                self.writing,
                temperature=temperature,
                seed=self.args.seed + first,
            )
        return texts

    def _alphas(self, texts: Texts) -> dict[float, list[float]]:
        """alpha on every held-out text, by temperature."""
        alphas = {}
        for temperature, texts_of_temperature in texts.items():
            alphas[temperature] = text_alphas(
                self.target,
                self.draft,
                self.prompts.held_out,
                texts_of_temperature,
                temperature=temperature,
                vocab=self.pair.vocab,
            )
        return alphas

    def _save(self, result: dict[str, Any], dtype: torch.dtype) -> None:
        self.draft.config.use_cache = True
        with whole_folder(self.args.output) as folder:
            self.draft.to(dtype).save_pretrained(folder)
            save_tokenizer(self.pair.draft_tokenizer or self.pair.tokenizer, folder)
            result_text = json.dumps(result, indent=1, default=asdict) + "\n"
            (folder / RESULT).write_text(result_text, encoding="utf-8")


def _compared(
    before: dict[float, list[float]], after: dict[float, list[float]]
) -> dict[str, dict[str, Estimate]]:
    """The mean alpha "before" and "after" and the mean "rise", by temperature."""
    compared = {}
    for temperature, alphas_before in before.items():
        alphas_after = after[temperature]
        rises = [new - old for old, new in zip(alphas_before, alphas_after, strict=True)]
        compared[f"{temperature:g}"] = {
            "before": mean(alphas_before),
            "after": mean(alphas_after),
            "rise": mean(rises),
        }
    return compared


def _alpha_lines(alpha: dict[str, dict[str, Estimate]]) -> Iterator[str]:
    heads = ("temperature", "alpha before", "alpha after", "rise")
    rows = [
        [
            temperature,
            means["before"].shown(3),
            means["after"].shown(3),
            means["rise"].shown(3),
        ]
        for temperature, means in alpha.items()
    ]
    yield from markdown(heads, rows)
    yield "\nMeans over the held-out prompts, with 95% bootstrap intervals."
    lowest_rises = [means["rise"].low or 0.0 for means in alpha.values()]
    if not any(rise > 0 for rise in lowest_rises):
        yield "alpha did not rise beyond noise: try more --written-tokens or another --rate."
