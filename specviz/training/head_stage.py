"""The stage `head` of a training: a head on the saved target, in the published EAGLE-3 format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import LlamaForCausalLM

from ..errors import SpecvizError
from ..models.checksums import write_checksums
from ..models.head import Head
from . import corpus as books
from .distill import BooksThenWritten
from .export import digest, load_model
from .head import ChainLoss, StateReader, chain_outputs, frequent_tokens, new_head
from .loop import LoopOptions, train
from .schedule import Schedule
from .writing import WrittenRows, write, write_rows

if TYPE_CHECKING:
    from .cli import TrainingJob

PROMPT_TOKENS = 16  # of a book, which the target continues
SHOWN_STEPS = 5  # of a chain, whose acceptance is printed


def add_head_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the stage `head` to a parser."""
    add = parser.add_argument
    add("--head-minutes", type=float, default=30.0, help="training time of the head")
    add("--head-steps", type=int, default=0, help="steps of the head, instead of minutes")
    add("--head-tokens", type=int, default=3072, help="how many tokens the head can draft")
    add("--head-states", default="", help="layers whose outputs the head reads, from 0, by commas")
    add("--head-length", type=int, default=255, help="window length in tokens")


def make_head(job: TrainingJob) -> None:
    """Train a head on the saved target, first on books, then on text that the target wrote."""
    args = job.args
    target = load_model(args.output / "target", job.device)
    if target.config.vocab_size < args.head_tokens or args.head_tokens < 2:
        raise SpecvizError(
            f"--head-tokens is {args.head_tokens}: use 2 to {target.config.vocab_size}."
        )
    layers = _states(args.head_states, target.config.num_hidden_layers)
    targets = frequent_tokens(job.train_tokens, target.config.vocab_size, args.head_tokens)
    head = new_head(target, layers, targets)
    nn.Module.to(head, job.device)
    made_by, length = digest(target), args.head_length
    windows = books.Windows(job.train_tokens, args.seed)
    rows = write_rows(
        target,
        lambda chunk, rows: books.Windows(job.train_tokens, args.seed + 2).batch(
            PROMPT_TOKENS, chunk * rows * PROMPT_TOKENS, rows
        )[:, :-1],
        folder=args.work / f"written-{made_by}",
        total_tokens=args.written_tokens,
        length=length,
        rows=min(128, max(1, args.written_tokens // length)),
        temperatures=tuple(float(part) for part in args.written_temperatures.split(",")),
        end_id=job.end_id,
        seed=args.seed,
    )
    source = BooksThenWritten(windows, WrittenRows(rows, args.seed), args.switch)
    options = LoopOptions(
        schedule=Schedule(
            minutes=args.head_minutes,
            steps=args.head_steps,
            warmup_steps=args.warmup_steps,
            decay=args.decay,
            lengths=(length,),
            shares=(1.0,),
        ),
        checkpoint=args.work / f"head-{made_by}-{args.head_tokens}.pt",
        batch_tokens=args.batch_tokens,
        micro_tokens=args.micro_tokens,
        matrix_rate=args.matrix_rate,
        embedding_rate=args.embedding_rate,
        checkpoint_minutes=args.checkpoint_minutes,
        stop_after=args.stop_after,
        label="head",
    )
    folder = args.output / "head"

    def report(model: LlamaForCausalLM) -> str:
        trained = cast(Head, model)
        save_head(trained, folder)
        return "acceptance by step at temperature 0.7: " + ", ".join(
            f"{share:.3f}" for share in chain_acceptance(target, trained, job, 0.7)
        )

    # The loop asks of its model only what a head has too.
    model = cast(LlamaForCausalLM, head)
    loss = cast(Any, ChainLoss(target, head))
    parts = nn.ModuleList([head.midlayer, head.fc])
    spent = train(model, source.batch, loss, options, report, parts)
    print(f"head: {spent.tokens} tokens in {spent.seconds / 60:.1f} min, {report(model)}")


def _states(text: str, layers: int) -> tuple[int, ...]:
    """After how many layers the states are read: by default after two, after the middle and after
    the last, since the middle of so few layers knows too little of the next token."""
    if not text:
        return (min(2, layers), max(1, (layers + 2) // 2), layers)
    try:
        chosen = tuple(int(part) + 1 for part in text.split(","))
    except ValueError:
        chosen = ()
    if not chosen or not all(1 <= layer <= layers for layer in chosen):
        raise SpecvizError(
            f"--head-states is {text!r}: give numbers from 0 to {layers - 1} separated by commas."
        )
    return chosen


def save_head(head: Head, folder: Path) -> None:
    """Save a head to `folder` in the published EAGLE-3 format: config, bf16 weights, checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    layer, config = head.config.layer, head.config
    values: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{name: getattr(layer, name) for name in _SAVED},
        "rope_theta": layer.rope_parameters["rope_theta"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config.draft_vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [n - 1 for n in config.states],
            "use_aux_hidden_state": True,
        },
    }
    weights = {name: value.detach().cpu() for name, value in head.state_dict().items()}
    weights = {n: w if n == "d2t" else w.to(torch.bfloat16) for n, w in weights.items()}
    drafted = torch.zeros(layer.vocab_size, dtype=torch.bool)
    drafted[head.targets.cpu()] = True
    partial = folder / "model.partial"
    save_file({**weights, "t2d": drafted}, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors writes files that only their owner can read
    partial.replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    write_checksums(folder)


_SAVED = (
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_key_value_heads",
    "rms_norm_eps",
    "vocab_size",
)


@torch.no_grad()
def chain_acceptance(
    target: LlamaForCausalLM, head: Head, job: TrainingJob, temperature: float
) -> list[float]:
    """The mean probability that a draft is accepted at each step of a chain whose earlier drafts
    were all accepted, on text that the target continues from held-out books.

    The mean over places of the sum of min(p, q) (Leviathan et al. 2022, arXiv 2211.17192,
    section 3.2).
    """
    prompts = books.Windows(job.held_out_tokens, job.args.seed).batch(PROMPT_TOKENS, 0, 16)
    ids = write(
        target,
        prompts[:, :-1].to(job.device),
        new_tokens=64,
        temperatures=torch.full((len(prompts),), temperature, device=job.device),
        end_id=job.end_id,
        generator=torch.Generator(job.device).manual_seed(job.args.seed),
    )
    states, last = StateReader(target, head.config.states)(ids)
    table = target.get_output_embeddings().weight
    p = (last.float() @ table.T / temperature).softmax(-1)
    shares = []
    for step, hidden in enumerate(chain_outputs(head, ids, states, SHOWN_STEPS)):
        first, end = PROMPT_TOKENS, ids.shape[1] - 1 - step
        q = (head.logits(hidden[:, first:end].float()) / temperature).softmax(-1)
        common = torch.minimum(p[:, 1 + step + first :][..., head.targets], q)
        shares.append(common.sum(-1).mean().item())
    return shares
