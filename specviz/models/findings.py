"""What there is to say about two models, one function per topic, before their weights are there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import constants

from ..errors import PairError
from .catalogue import ModelFacts, known_model
from .hub import Listing, Source, has_token
from .memory import Room, smaller_precisions
from .metadata import Blueprint
from .pair import Pair, context_length, logit_width, parameter_count, text_config, tokenizer_size
from .sizes import shown_bytes, shown_count
from .weights import Load, Way, target_place

Level = Literal["good", "warning", "stop"]

WANTED_RATIO = 10.0  # target to draft
POOR_RATIO = 3.0
TIGHT = 0.9  # of what is free


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. sentence: what was found and what to do about it."""

    level: Level
    topic: str
    sentence: str


def access_findings(source: Source, listing: Listing | None, readable: bool) -> list[Finding]:
    """Whether a model of the hub asks for its licence to be accepted, and has been."""
    facts = known_model(source.name)
    if source.folder is not None or not (listing.gated if listing else facts and facts.gated):
        return []
    if readable:
        said = f"{source.shown} is gated, and this machine may read it: nothing to do."
        return [Finding("good", "access", said)]
    token = "a token is set" if has_token() else "no token is set: put one into HF_TOKEN"
    said = f"{source.shown} is gated: accept its licence on {source.page}; {token}."
    return [Finding("warning", "access", said)]


def file_findings(source: Source, listing: Listing | None) -> list[Finding]:
    """Whether a model of the hub has safetensors files, and the disk room for them."""
    if listing is None:
        return []
    sizes = [size for name, size in listing.files.items() if _is_weights(name)]
    if not sizes:
        said = (
            f"{source.shown} has no safetensors on its page, and pickles are never read: loading "
            "asks the hub's converter for a copy; if none comes, choose another model."
        )
        return [Finding("warning", "files", said)]
    total, free = sum(sizes), _free_disk()
    said = f"{source.shown} has {shown_bytes(total)} of safetensors"
    if total > free and not _is_cached(source):
        said += f", and the disk has {shown_bytes(free)} free: make room, or set HF_HOME."
        return [Finding("warning", "files", said)]
    return [Finding("good", "files", f"{said} to load.")]


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name and name.startswith("model")


def _free_disk() -> int:
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _is_cached(source: Source) -> bool:
    folder = Path(constants.HF_HUB_CACHE) / f"models--{source.name.replace('/', '--')}"
    return any(folder.glob("snapshots/*/model*.safetensors"))


def rollback_findings(plan: Blueprint) -> list[Finding]:
    """Whether rejected drafts can be undone in the caches of this model."""
    shown, kind = plan.source.shown, text_config(plan.model).model_type
    if not plan.caches.rolls_back:
        said = (
            f"{shown} is of type {kind}, which keeps a running state that cannot be rolled back, "
            "so rejected drafts could not be undone: choose an attention-only model."
        )
        return [Finding("stop", "rollback", said)]
    windows = sorted({layer.window for layer in plan.caches.layers if layer.window})
    how = f", sliding windows of {windows[0]:,} tokens included" if windows else ""
    return [Finding("good", "rollback", f"{shown}'s caches can be rolled back{how}.")]


def chat_findings(pair: Pair, draft: Pair | None) -> list[Finding]:
    """Whether prompts go through a chat template."""
    if draft is not None and pair.is_chat != draft.is_chat:
        tuned, plain = ("target", "draft") if pair.is_chat else ("draft", "target")
        said = (
            f"the {tuned} is tuned for chat and the {plain} is not: they will agree less than two "
            "of a kind, so prefer both tuned or both plain."
        )
        return [Finding("warning", "chat", said)]
    if pair.is_chat:
        said = "prompts go through the target's chat template: set chat to 'off' for plain text."
        return [Finding("good", "chat", said)]
    said = "the target has no chat template of its own: prompts are plain text that it continues."
    return [Finding("good", "chat", said)]


def vocabulary_findings(pair: Pair) -> list[Finding]:
    """Tokenizers that are equal, and how vocabularies are padded. The pair fits already."""
    pieces = tokenizer_size(pair.tokenizer)
    widths = [logit_width(model) for model in (pair.target, pair.draft)]
    said = f"both models use one tokenizer of {pieces:,} pieces: nothing to do."
    found = [Finding("good", "tokenizer", said)]
    if set(widths) != {pieces}:
        said = (
            f"the target has {widths[0]:,} logits and the draft {widths[1]:,}: ids from "
            f"{pair.vocab:,} on are never drafted or emitted."
        )
        found.append(Finding("good", "vocabulary", said))
    return found + _ending_findings(pair)


def _ending_findings(pair: Pair) -> list[Finding]:
    ours, theirs = pair.eos_ids, Pair(pair.draft, None, pair.tokenizer).eos_ids
    if ours == theirs or not ours or not theirs or ours & theirs:
        return []
    names = [
        " or ".join(sorted(map(repr, pair.tokenizer.convert_ids_to_tokens(sorted(ids)))))
        for ids in (ours, theirs)
    ]
    said = (
        f"the target ends a text with {names[0]}, the draft with {names[1]}: ends will be guessed "
        "badly, so prefer two models tuned alike."
    )
    return [Finding("warning", "special tokens", said)]


def size_findings(plans: list[Blueprint], hint: str) -> list[Finding]:
    """Parameters and their ratio. hint: a better draft, or nothing."""
    counts = [parameter_count(plan.model) for plan in plans]
    shown = " and ".join(
        f"{plan.source.shown} {shown_count(count)}"
        for plan, count in zip(plans, counts, strict=True)
    )
    ratio = counts[0] / max(1, counts[1])
    said = f"parameters: {shown}; "
    if ratio >= WANTED_RATIO:
        return [Finding("good", "size", f"{said}the draft is {ratio:,.0f} times smaller.")]
    better = f"choose {hint}." if hint else "a draft ten times smaller usually pays better."
    if ratio < 1.5:
        said += (
            f"a draft about as large as its target, or larger, costs more than it saves: {better}"
        )
    elif ratio < POOR_RATIO:
        said += f"a draft only {ratio:.1f} times smaller costs more than it saves: {better}"
    else:
        said += f"a draft {ratio:.1f} times smaller must agree often to pay: {better}"
    return [Finding("warning", "size", said)]


def mixture_findings(plan: Blueprint) -> list[Finding]:
    """Whether the target uses only some of its weights for a token."""
    config = text_config(plan.model)
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((n for name in names if isinstance(n := getattr(config, name, None), int)), 0)
    used = getattr(config, "num_experts_per_tok", None)
    if experts < 2 or not isinstance(used, int):
        return []
    said = (
        f"{plan.source.shown} uses {used} of {experts} experts for a token: one token is cheaper "
        "than its size says, and several at once wake more experts, so expect less speed-up; "
        "8-bit and 4-bit weights do not shrink the experts."
    )
    return [Finding("warning", "size", said)]


def memory_findings(loads: list[Load], spaces: list[Room], tokens: int) -> list[Finding]:
    """Whether weights and caches fit into what is free."""
    draft = loads[1] if len(loads) > 1 else None
    try:
        device, _ = target_place(loads[0], draft, spaces, tokens)
    except PairError as error:
        return [Finding("stop", "memory", str(error))]
    total = sum(load.bytes(tokens) for load in loads)
    each = ", ".join(
        f"{load.name} {shown_bytes(load.bytes(tokens))} as {load.precision}" for load in loads
    )
    free = max(room.free for room in spaces) if device else sum(room.free for room in spaces)
    where = str(device) if device else f"{len(spaces)} GPUs together"
    said = (
        f"weights and caches of {tokens:,} tokens need {shown_bytes(total)} ({each}); {where} "
        f"{'has' if device else 'have'} {shown_bytes(free)} free"
    )
    if total > TIGHT * free:
        return [Finding("warning", "memory", f"{said}: close other programs first.")]
    return [Finding("good", "memory", f"{said}.")]


def table_findings(
    models: list[ModelFacts], ways: list[Way], spaces: list[Room], tokens: int
) -> list[Finding]:
    """Memory by the table of pairs, for models whose files cannot be read yet."""
    cpu, free = spaces[0].device.type == "cpu", sum(room.free for room in spaces)
    usual = "float32" if cpu else models[0].dtype
    named = [way.quantize or str(way.dtype or usual).removeprefix("torch.") for way in ways]

    def total(precisions: list[str]) -> int:
        return sum(
            model.bytes(precision, tokens, copies=1 + (model is models[0]))
            for model, precision in zip(models, precisions, strict=False)
        )

    said = (
        f"by the table of pairs, weights and caches of {tokens:,} tokens need "
        f"{shown_bytes(total(named))} as {' and '.join(dict.fromkeys(named))}, and "
        f"{shown_bytes(free)} are free"
    )
    if total(named) <= free:
        return [Finding("good", "memory", f"{said}.")]
    fitting = [way for way in smaller_precisions(cpu) if total([way] * len(models)) <= free]
    better = f"choose {fitting[0]}, or a smaller pair" if fitting else "choose a smaller pair"
    return [Finding("stop", "memory", f"{said}: {better}.")]


def context_findings(plans: list[Blueprint]) -> list[Finding]:
    """How long a text may get, and whether the draft sees all of it."""
    limits = [context_length(plan.model) for plan in plans]
    shown = [f"{limit:,} tokens" if limit else "any length" for limit in limits]
    if len(plans) == 1:
        return [Finding("good", "context", f"the target sees {shown[0]}.")]
    if limits[1] is not None and (limits[0] is None or limits[1] < limits[0]):
        said = (
            f"the draft sees {shown[1]} and the target {shown[0]}: keep texts below that, since "
            "longer ones go on without drafts."
        )
        return [Finding("warning", "context", said)]
    said = f"the target sees {shown[0]}, the draft {shown[1]}."
    return [Finding("good", "context", said)]
