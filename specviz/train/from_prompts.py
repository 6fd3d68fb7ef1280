"""A better draft for a target: the target continues prompts, and the draft learns from it.

The draft learns the target's whole distribution after every written token, by forward KL (Hinton
et al. 2015, arXiv 1503.02531). A share of the batches may be text that the draft writes itself, on
which the target's distributions are its labels (Agarwal et al. 2023, "GKD", arXiv 2306.13649; Zhou
et al. 2023, "DistillSpec", arXiv 2310.08461).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
import torch

from ..environment import BUILTIN
from ..errors import PairError, SpecvizError
from ..pairs.load import load_pair
from ..pairs.memory import device_memory, loading_precision
from ..pairs.metadata import ModelMetadata, read_metadata
from ..pairs.models import meta_pair, model_names
from ..pairs.pair import Pair
from ..pairs.precision import checked_device
from ..pairs.spec import NamedSpec
from ..runs.tables import markdown
from ..runs.uncertainty import Estimate, mean
from .export import digest, save_tokenizer, whole_folder
from .loop import Batches, Training, TrainingProgress, on_text, train
from .losses import logits_loss, text_alphas
from .needs import check_need, distillation_need
from .openings import PromptIds, read_prompt_ids
from .writing import Writing, WrittenRows, marked_rows, write, write_rows

EPOCHS = 2  # passes over the written text, if no budget is given
RESULT = "distillation.json"  # beside the saved draft
RECORDED = ("new_tokens", "written_tokens", "written_temperatures", "own_text", "rate", "seed")

Figures: TypeAlias = dict[float, dict[str, Estimate]]
"""Temperature -> "before", "after" and "rise" -> alpha."""


def distill(args: argparse.Namespace) -> None:
    """Run the whole distillation and print alpha before and after.

    The draft is saved to `args.output` with its tokenizer. Raises `SpecvizError` for invalid
    options or files, for models that do not match, and if there is too little memory.
    """
    _check(args)
    models = _models(args)
    meta = meta_pair(models)  # raises if the two do not match
    if meta.shared is not None:
        raise PairError(
            "target and draft have different tokenizers, so their distributions cannot be compared "
            "token by token: choose a draft with the target's tokenizer."
        )
    place = max(device_memory(checked_device(args.device or None)), key=lambda memory: memory.free)
    precision = loading_precision(models[0].config, place.device)
    prompts = read_prompt_ids(
        args.prompts, args.held_out_prompts, meta, new_tokens=args.new_tokens, seed=args.seed
    )
    width = prompts.width(args.new_tokens)
    need = distillation_need(
        *models,
        precision=precision,
        rows=args.write_rows,
        width=width,
        tokens=max(args.micro_tokens, width),
    )
    print(f"{place.device.type}, target in {precision}, memory needed: about {need}")
    check_need(need, place)
    dtype = "float32" if place.device.type == "cpu" else None
    name = "+".join(str(model.source.name) for model in models)
    pair = load_pair(name, dtype=dtype, device=place.device)
    Distillation(args, pair, prompts, models[1].config.dtype).run()


def _check(args: argparse.Namespace) -> None:
    if not args.draft or not args.prompts:
        raise SpecvizError("--distill TARGET needs --draft DRAFT and --prompts FILE.")
    if args.distill.startswith(("http://", "https://")):
        raise SpecvizError(
            "a target on a server gives no logits to learn from: name its hub id or its folder."
        )
    if not 0 < args.rate < 1:
        raise SpecvizError(f"--rate is {args.rate}: choose a rate above 0 and below 1.")


def _models(args: argparse.Namespace) -> list[ModelMetadata]:
    built_in = model_names(NamedSpec(BUILTIN))
    pairs = zip((args.distill, args.draft), built_in, strict=True)
    return [read_metadata(str(own) if name == BUILTIN else name) for name, own in pairs]


class Distillation:
    """One distillation of a loaded pair."""

    def __init__(
        self, args: argparse.Namespace, pair: Pair, prompts: PromptIds, dtype: torch.dtype | None
    ) -> None:
        self.args, self.pair, self.prompts = args, pair, prompts
        self.saved_dtype = dtype or torch.float32
        target: Any = pair.target
        draft: Any = pair.draft_model
        self.target, self.draft = target.requires_grad_(False), draft.float()
        self.digests = digest(self.target), digest(self.draft)
        self.how = Writing.of(pair, args.new_tokens)
        self.temperatures = args.written_temperatures
        self.width = prompts.width(args.new_tokens)  # tokens of a row
        self.chunks = max(1, -(-args.written_tokens // (args.write_rows * args.new_tokens)))

    def run(self) -> None:
        """Write, learn, save and report."""
        prompts, texts = self.prompts, self._held_out_texts()
        print(
            f"{len(prompts.train)} prompts to learn from, {len(prompts.held_out)} held out, "
            f"{prompts.left_out} left out"
        )
        before = self._alphas(texts)
        for temperature, values in before.items():
            print(f"temperature {temperature:g}: alpha before {mean(values).shown(3)}", flush=True)
        rows = WrittenRows(self._written(), self.args.seed)
        # On a processor, products in 16 bits are slower than in fp32 without special instructions.
        half = self.pair.device.type == "cuda" and torch.cuda.is_bf16_supported()
        loss = logits_loss(self.target, self.pair.vocab, half=half)
        spent = train(self.draft, self._batches(rows), loss, self._training(len(rows.rows)))
        # What is measured is what is saved: the weights rounded to their own dtype.
        self.draft.to(self.saved_dtype).float()
        after = self._alphas(texts)
        figures = _figures(before, after)
        self._save(figures, spent)
        _print_figures(figures)
        print(
            f"{self.args.output}: {spent.step} steps, {spent.tokens} tokens in "
            f"{spent.seconds / 60:.1f} min"
        )

    def _key(self, *more: Any) -> str:
        """A short hash of what the written text depends on, and of `more`."""
        values = [self.digests[0], self.prompts.train, asdict(self.how), self.temperatures]
        values += [self.args.write_rows, self.args.seed, *more]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]

    def _chunk(self, chunk: int) -> list[list[int]]:
        """The prompts of one chunk of text: the next ones, from the first again after the last."""
        prompts, rows = self.prompts.train, self.args.write_rows
        return [prompts[i % len(prompts)] for i in range(chunk * rows, (chunk + 1) * rows)]

    def _written(self) -> np.ndarray:
        return write_rows(
            self.target,
            self._chunk,
            self.how,
            folder=self.args.work / f"written-{self._key()}",
            chunks=self.chunks,
            width=self.width,
            temperatures=self.temperatures,
            seed=self.args.seed,
        )

    def _batches(self, rows: WrittenRows) -> Batches:
        args = self.args

        def batch(length: int, seen: int, count: int, progress: float) -> torch.Tensor:
            written = rows.batch(length, seen, count)
            draws = np.random.default_rng((args.seed, seen))
            if draws.random() >= args.own_text:
                return written
            return self._own_text(draws, len(written))

        return batch

    def _own_text(self, draws: np.random.Generator, rows: int) -> torch.Tensor:
        """Marked rows that the draft itself writes, as it is now."""
        chosen = draws.integers(len(self.prompts.train), size=rows)
        prompts = [self.prompts.train[i] for i in chosen]
        temperature = float(draws.choice(self.temperatures))
        seed = int(draws.integers(2**31))
        texts = write(self.draft, prompts, self.how, temperature=temperature, seed=seed)
        return torch.from_numpy(marked_rows(prompts, texts, self.width, self.how.pad)).long()

    def _training(self, rows: int) -> Training:
        args = self.args
        key = self._key(self.digests[1], args.rate, args.own_text, args.batch_tokens, self.chunks)
        budget = {"minutes": args.draft_minutes, "steps": args.draft_steps}
        schedule = on_text(args, rows, self.width - 1, epochs=EPOCHS, **budget)
        checkpoint = args.work / f"distilled-{key}.pt"
        return Training(args, schedule, checkpoint, "draft learns", args.rate)

    def _held_out_texts(self) -> dict[float, list[list[int]]]:
        """What the target writes after the held-out prompts, by temperature."""
        rows, held_out = self.args.write_rows, self.prompts.held_out
        texts: dict[float, list[list[int]]] = {}
        for temperature in self.temperatures:
            texts[temperature] = []
            for first in range(0, len(held_out), rows):
                part, seed = held_out[first : first + rows], self.args.seed + first
                texts[temperature] += write(
                    self.target, part, self.how, temperature=temperature, seed=seed
                )
        return texts

    def _alphas(self, texts: dict[float, list[list[int]]]) -> dict[float, list[float]]:
        """alpha on every held-out text, by temperature."""
        return {
            temperature: text_alphas(
                self.target,
                self.draft,
                self.prompts.held_out,
                some,
                temperature=temperature,
                vocab=self.pair.vocab,
            )
            for temperature, some in texts.items()
        }

    def _save(self, figures: Figures, spent: TrainingProgress) -> None:
        args = self.args
        result = {
            "target": args.distill,
            "draft": args.draft,
            "prompts": len(self.prompts.train),
            "held_out": len(self.prompts.held_out),
            "alpha": {
                f"{temperature:g}": {name: asdict(one) for name, one in means.items()}
                for temperature, means in figures.items()
            },
            "spent": asdict(spent),
            "options": {name: getattr(args, name) for name in RECORDED},
        }
        self.draft.config.use_cache = True
        with whole_folder(args.output) as folder:
            self.draft.to(self.saved_dtype).save_pretrained(folder)
            save_tokenizer(self.pair.draft_tokenizer or self.pair.tokenizer, folder)
            (folder / RESULT).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _figures(before: dict[float, list[float]], after: dict[float, list[float]]) -> Figures:
    return {
        temperature: {
            "before": mean(values),
            "after": mean(after[temperature]),
            "rise": mean([b - a for a, b in zip(values, after[temperature], strict=True)]),
        }
        for temperature, values in before.items()
    }


def _print_figures(figures: Figures) -> None:
    heads = ("temperature", "alpha before", "alpha after", "rise")
    rows = [
        [f"{temperature:g}", *(means[name].shown(3) for name in ("before", "after", "rise"))]
        for temperature, means in figures.items()
    ]
    print("", *markdown(heads, rows), sep="\n")
    print("\nMeans over the held-out prompts, with 95% intervals of the bootstrap over them.")
    if not any((means["rise"].low or 0.0) > 0 for means in figures.values()):
        print("alpha did not rise beyond noise: try more --written-tokens or another --rate.")
