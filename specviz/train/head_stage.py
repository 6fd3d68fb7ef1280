"""The stage `head` of a training: a head on the saved target, in the published EAGLE-3 format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from ..errors import SpecvizError
from ..pairs.checksums import write_checksums
from ..pairs.heads.eagle import Head
from . import corpus as books
from .export import digest, load_model
from .from_books import PROMPT_TOKENS, TrainingJob, openings_at, writing_for, written
from .head import ChainLoss, StateReader, chain_outputs, frequent_tokens, new_head
from .loop import loop_options, numbers, train
from .losses import BooksThenWritten
from .writing import WrittenRows, write

SHOWN_STEPS = 5  # of a chain, whose acceptance is printed
SHOWN_AT = 0.7  # the temperature of the text for that
SHOWN_ROWS, SHOWN_TOKENS = 16, 64  # of it


def add_head_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the options of the stage `head`."""
    add = group.add_argument
    add("--head-minutes", type=float, default=30.0, help="training time of the head")
    add("--head-steps", type=int, default=0, help="steps of the head, instead of minutes")
    add("--head-tokens", type=int, default=3072, help="how many tokens the head can draft")
    add("--head-states", default="", help="layers whose outputs it reads, from 0, by commas")
    add("--head-length", type=int, default=255, help="window length in tokens")


def make_head(job: TrainingJob) -> None:
    """Train a head on the saved target, first on books, then on text that the target wrote; each
    checkpoint is also saved to the output folder."""
    args, folder = job.args, job.args.output / "head"
    target = load_model(args.output / "target", job.device)
    head = _begun(job, target)
    made_by = digest(target)
    rows = written(job, target, args.work / f"written-{made_by}")
    source = BooksThenWritten(
        books.Windows(job.train_tokens, args.seed), WrittenRows(rows, args.seed), args.switch
    )
    options = loop_options(
        args,
        minutes=args.head_minutes,
        steps=args.head_steps,
        checkpoint=args.work / f"head-{made_by}-{args.head_tokens}.pt",
        label="head",
        lengths=(args.head_length,),
        shares=(1.0,),
    )

    def report(trained: Head) -> str:
        save_head(trained, folder)
        shares = chain_acceptance(target, trained, job)
        shown = ", ".join(f"{share:.3f}" for share in shares)
        return f"acceptance by step at temperature {SHOWN_AT}: {shown}"

    loss = ChainLoss(target, head)
    layers = nn.ModuleList([head.midlayer, head.fc])
    spent = train(head, source.batch, loss, options, report, layers)
    print(f"head: {spent.tokens} tokens in {spent.seconds / 60:.1f} min, {report(head)}")


def _begun(job: TrainingJob, target: LlamaForCausalLM) -> Head:
    """A head that has not learnt yet."""
    args, vocab = job.args, target.config.vocab_size
    if not 2 <= args.head_tokens <= vocab:
        raise SpecvizError(f"--head-tokens is {args.head_tokens}: use 2 to {vocab}.")
    targets = frequent_tokens(job.train_tokens, vocab, args.head_tokens)
    head = new_head(target, _states(args.head_states, target.config.num_hidden_layers), targets)
    nn.Module.to(head, job.device)
    assert head.embedding is not None
    head.embedding = head.embedding.to(job.device)
    return head


def _states(text: str, layers: int) -> tuple[int, ...]:
    """After how many layers the states are read: by default after two, after the middle and after
    the last, since the middle of so few layers knows too little of the next token."""
    if not text:
        return (min(2, layers), max(1, (layers + 2) // 2), layers)
    chosen = tuple(n + 1 for n in numbers(text, int, "--head-states"))
    if not all(1 <= n <= layers for n in chosen):
        raise SpecvizError(f"--head-states is {text!r}: use numbers from 0 to {layers - 1}.")
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
def chain_acceptance(target: LlamaForCausalLM, head: Head, job: TrainingJob) -> list[float]:
    """The mean probability that a draft is accepted at each step of a chain whose earlier drafts
    were all accepted, on text that the target continues from held-out books.

    The mean over places of the sum of min(p, q) (Leviathan et al. 2022, arXiv 2211.17192,
    section 3.2).
    """
    prompts = openings_at(books.Windows(job.held_out_tokens, job.args.seed), 0, SHOWN_ROWS)
    how = writing_for(job, SHOWN_TOKENS)
    texts = write(target, prompts, how, temperature=SHOWN_AT, seed=job.args.seed)
    ids = torch.tensor(texts, device=job.device)
    states, last = StateReader(target, head.config.states)(ids)
    table: Tensor = target.get_output_embeddings().weight
    p = (last.float() @ table.T / SHOWN_AT).softmax(-1)
    shares = []
    for step, hidden in enumerate(chain_outputs(head, ids, states, SHOWN_STEPS)):
        first, end = PROMPT_TOKENS, ids.shape[1] - 1 - step
        q = (head.logits(hidden[:, first:end].float()) / SHOWN_AT).softmax(-1)
        common = torch.minimum(p[:, 1 + step + first :][..., head.targets], q)
        shares.append(common.sum(-1).mean().item())
    return shares
