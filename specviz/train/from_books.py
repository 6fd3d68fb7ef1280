"""A target and a draft, trained from scratch on a folder of books.

A stage that was interrupted continues from its last checkpoint. The results are the folders
`target` and `draft`, in the format of the hub, each with the tokenizer.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from ..core.policy import predicted_tau
from ..errors import SpecvizError
from ..pairs.pair import parameter_count
from . import corpus as books
from .corpus import load_tokenizer, train_tokenizer
from .loop import Schedule, Training, train
from .losses import cross_entropy, held_out_loss, inherit_embeddings, logits_loss, text_alphas
from .models import (
    CONTEXT,
    PRESETS,
    Shape,
    build_model,
    digest,
    load_model,
    save_model,
    save_tokenizer,
    whole_folder,
)
from .writing import Writing, WrittenRows, write, write_rows

STAGES = ("tokenizer", "target", "draft")
PROMPT_TOKENS = 16  # of a book, which the target continues
WRITTEN_LENGTH = min(256, CONTEXT)  # tokens of a row of text that the target writes


def train_on_books(args: argparse.Namespace) -> None:
    """Run the chosen stages, or evaluate; raises `SpecvizError` for invalid options or files."""
    job = TrainingJob(args)
    if args.evaluate:
        evaluate(job)
        return
    for stage in STAGES if args.stage == "all" else (args.stage,):
        {"tokenizer": make_tokenizer, "target": make_target, "draft": make_draft}[stage](job)


class TrainingJob:
    """The options of one call, and what several stages derive from them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.preset = args, PRESETS[args.preset]
        self.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def corpus(self) -> tuple[books.Books, books.Books]:
        return books.read_corpus(self.args.corpus, [n for n in self.args.held_out.split(",") if n])

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return load_tokenizer(self.args.work / "tokenizer")

    @property
    def end_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @cached_property
    def train_tokens(self) -> np.ndarray:
        return self._encode(self.corpus[0])

    @cached_property
    def held_out_tokens(self) -> np.ndarray:
        return self._encode(self.corpus[1])

    def _encode(self, part: books.Books) -> np.ndarray:
        backend = self.tokenizer.backend_tokenizer
        return books.encode_books(part, backend, self.end_id, self.args.seed)

    def shape(self, name: str) -> Shape:
        default: Shape = getattr(self.preset, name)
        layers = getattr(self.args, f"{name}_layers") or default.layers
        return Shape(layers, getattr(self.args, f"{name}_width") or default.width)

    def new_model(self, name: str) -> LlamaForCausalLM:
        model = build_model(
            self.shape(name),
            vocabulary=len(self.tokenizer),
            end_id=self.end_id,
            seed=self.args.seed,
        )
        torch.nn.Module.to(model, self.device)
        return model

    def options(
        self, name: str, *, minutes: float, steps: int, book_share: float = 1.0, suffix: str = ""
    ) -> Training:
        """The options of one training.

        book_share: the share of the budget after which the windows have their last length.
        suffix: of the name of the checkpoint.
        """
        args, shape = self.args, self.shape(name)
        shares = tuple(book_share * share for share in Schedule.shares)
        schedule = Schedule(minutes, steps, args.warmup_steps, args.decay, args.lengths, shares)
        checkpoint = args.work / f"{name}-{shape.layers}x{shape.width}{suffix}.pt"
        return Training(args, schedule, checkpoint, name)


def make_tokenizer(job: TrainingJob) -> None:
    """Train the tokenizer on the training books, unless it exists already."""
    folder = job.args.work / "tokenizer"
    if (folder / "tokenizer.json").exists():
        return
    texts = job.corpus[0].values()
    tokenizer = train_tokenizer(texts, vocabulary=job.args.vocabulary)
    with whole_folder(folder) as partial:
        save_tokenizer(tokenizer, partial)


def make_target(job: TrainingJob) -> None:
    """Train the target on the books; each checkpoint is also saved to the output folder."""
    args = job.args
    windows = books.Windows(job.train_tokens, args.seed)
    minutes = args.minutes or job.preset.minutes
    options = job.options("target", minutes=minutes, steps=args.steps)
    folder = args.output / "target"

    def report(model: LlamaForCausalLM) -> str:
        save_model(model, job.tokenizer, folder)
        nats = held_out_loss(model, job.held_out_tokens, length=256, limit=32_768)
        return f"held-out {nats:.3f} nats per token"

    model = job.new_model("target")
    spent = train(model, windows.batch, cross_entropy, options, report)
    print(f"target: {spent.tokens} tokens in {spent.seconds / 60:.1f} min, {report(model)}")


def make_draft(job: TrainingJob) -> None:
    """Distil the saved target into the draft: on the books, then on text that the target wrote."""
    args = job.args
    target = load_model(args.output / "target", job.device)
    if len(job.tokenizer) != target.config.vocab_size:
        raise SpecvizError("The target and the tokenizer have different vocabularies: train again.")
    made_by, windows = digest(target), books.Windows(job.train_tokens, args.seed)
    texts = WrittenRows(written(job, target, args.work / f"written-{made_by}"), args.seed)

    def batch(length: int, seen: int, rows: int, progress: float) -> torch.Tensor:
        # In a race the draft reads the target's text, so it is trained on such text last. One batch
        # in four is still from the books, because their windows are longer than the written rows.
        is_book = progress < args.switch or seen // (rows * length) % 4 == 0
        return (windows if is_book else texts).batch(length, seen, rows)

    minutes = args.draft_minutes or job.preset.draft_minutes
    options = job.options(
        "draft",
        minutes=minutes,
        steps=args.draft_steps,
        book_share=args.switch,
        suffix=f"-{made_by}",
    )
    draft = job.new_model("draft")
    inherit_embeddings(draft, target)
    spent = train(draft, batch, logits_loss(target, len(job.tokenizer), half=True), options)
    save_model(draft, job.tokenizer, args.output / "draft")
    print(f"draft: {spent.tokens} tokens in {spent.seconds / 60:.1f} min")


def written(job: TrainingJob, target: LlamaForCausalLM, folder: Path) -> np.ndarray:
    """Marked rows that the target writes after short passages of the books."""
    args = job.args
    rows = min(128, max(1, args.written_tokens // WRITTEN_LENGTH))
    windows = books.Windows(job.train_tokens, args.seed + 1)

    def openings(chunk: int) -> list[list[int]]:
        return openings_at(windows, chunk * rows * PROMPT_TOKENS, rows)

    return write_rows(
        torch.nn.Module.to(copy.deepcopy(target), torch.bfloat16),
        openings,
        writing_for(job, WRITTEN_LENGTH + 1 - PROMPT_TOKENS),
        args,
        folder=folder,
        chunks=max(1, -(-args.written_tokens // (rows * WRITTEN_LENGTH))),
        width=WRITTEN_LENGTH + 1,
    )


def openings_at(windows: books.Windows, seen: int, rows: int) -> list[list[int]]:
    opening: list[list[int]] = windows.batch(PROMPT_TOKENS, seen, rows)[:, :-1].tolist()
    return opening


def writing_for(job: TrainingJob, new_tokens: int) -> Writing:
    # After the end of a book, text would no longer depend on the prompt.
    return Writing(new_tokens, never=(job.end_id,), pad=job.end_id)


def evaluate(job: TrainingJob) -> None:
    """Print sizes, held-out perplexity, and alpha estimated on text that the target writes."""
    models = {name: load_model(job.args.output / name, job.device) for name in ("target", "draft")}
    for name, model in models.items():
        nats = held_out_loss(model, job.held_out_tokens, length=CONTEXT)
        print(
            f"{name}: {parameter_count(model) / 1e6:.2f} M parameters, held-out "
            f"{nats:.3f} nats per token, perplexity {np.exp(nats):.1f}"
        )
    target, draft, seed = models["target"], models["draft"], job.args.seed
    prompts = openings_at(books.Windows(job.held_out_tokens, seed), 0, 64)
    for temperature in (0.0, 0.7, 1.0):
        texts = write(target, prompts, writing_for(job, 128), temperature=temperature, seed=seed)
        alpha = statistics.fmean(
            text_alphas(target, draft, prompts, texts, temperature=temperature)
        )
        print(
            f"temperature {temperature}: alpha about {alpha:.3f}, "
            f"{predicted_tau(alpha, 5):.2f} tokens per round at gamma 5"
        )
