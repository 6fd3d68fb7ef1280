"""Findings of the doctor about two models, before their weights are read: a function per topic."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import constants

from ..errors import PairError
from .gguf import GgufHeader
from .hub import Listing, page_of, token_state
from .memory import DeviceMemory, PlannedLoad, place_target
from .metadata import ModelMetadata
from .pair import (
    Pair,
    context_length,
    end_ids,
    logit_width,
    parameter_count,
    text_config,
    tokenizer_size,
)
from .shared_tokens import SharedTokens
from .sizes import DRAFTING_LANES, LANES, shown_bytes, shown_count, smaller_precisions
from .table import HeadFacts, ModelFacts, known_model
from .weights import LoadOptions, ModelSource

Level = Literal["good", "warning", "stop"]

GOOD_RATIO = 10.0  # the target's parameters / the draft's
POOR_RATIO = 3.0
TIGHT = 0.9  # needed bytes / free bytes, above which a warning is given


@dataclass(frozen=True)
class Finding:
    """The result of one check. sentence: what was found, and what to do about it."""

    level: Level
    topic: str
    sentence: str


def access_findings(source: ModelSource, listing: Listing | None, readable: bool) -> list[Finding]:
    """Whether a model of the hub requires a licence to be accepted, and whether it can be read."""
    facts = known_model(source.name)
    if source.folder is not None or not (listing.gated if listing else facts and facts.gated):
        return []
    if readable:
        sentence = f"{source.shown} is gated, and this machine has access to it: nothing to do."
        return [Finding("good", "access", sentence)]
    sentence = f"{source.shown} is gated: accept its licence on {page_of(source)}; {token_state()}."
    return [Finding("warning", "access", sentence)]


def file_findings(source: ModelSource, listing: Listing | None) -> list[Finding]:
    """Whether a model of the hub has safetensors files, and whether they fit on the disk."""
    if listing is None:
        return []
    sizes = [size for name, size in listing.files.items() if _is_weights(name)]
    if not sizes:
        sentence = (
            f"{source.shown} has no safetensors on its page, and pickles are never read: loading "
            "asks the hub's converter for a copy; if none comes, choose another model."
        )
        return [Finding("warning", "files", sentence)]
    total, free = sum(sizes), _free_disk()
    sentence = f"{source.shown} has {shown_bytes(total)} of safetensors"
    if total > free and not _is_cached(source):
        sentence += (
            f", and the disk has {shown_bytes(free)} free: delete some files, or set HF_HOME."
        )
        return [Finding("warning", "files", sentence)]
    return [Finding("good", "files", f"{sentence} to load.")]


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name and name.startswith("model")


def _free_disk() -> int:
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _is_cached(source: ModelSource) -> bool:
    folder = Path(constants.HF_HUB_CACHE) / f"models--{source.name.replace('/', '--')}"
    return any(folder.glob("snapshots/*/model*.safetensors"))


def packed_findings(header: GgufHeader, unpacked: int) -> list[Finding]:
    """What a GGUF file says of itself. unpacked: bytes on the disk, once it is."""
    licence = header.text("general.license")
    template = "has a chat template" if header.has_template else "has no chat template"
    findings = [
        Finding(
            "good",
            "file",
            f"{header.path.name} holds {header.name}: {header.architecture}, "
            f"{shown_count(header.parameters)} parameters in {header.quantization}; it "
            f"{template}. It is unpacked once, to {shown_bytes(unpacked)} of bf16 in the cache "
            "folder.",
        )
    ]
    if licence:
        findings.append(Finding("good", "licence", f"the file names its licence: {licence}."))
    else:
        sentence = "the file names no licence: look for it where you have the file from."
        findings.append(Finding("warning", "licence", sentence))
    return findings


def rollback_findings(metadata: ModelMetadata) -> list[Finding]:
    """Whether rejected tokens can be removed from the caches of this model."""
    shown, kind = metadata.source.shown, text_config(metadata.model).model_type
    if not metadata.caches.rolls_back:
        sentence = (
            f"{shown} is of type {kind}, which keeps a running state that cannot be rolled back, "
            "so rejected drafts could not be undone: choose an attention-only model."
        )
        return [Finding("stop", "rollback", sentence)]
    windows = sorted({layer.window for layer in metadata.caches.layers if layer.window})
    how = f", sliding windows of {windows[0]:,} tokens included" if windows else ""
    return [Finding("good", "rollback", f"{shown}'s caches can be rolled back{how}.")]


def chat_findings(pair: Pair, draft: Pair | None) -> list[Finding]:
    """Whether prompts go through a chat template."""
    if draft is not None and pair.is_chat != draft.is_chat:
        tuned, plain = ("target", "draft") if pair.is_chat else ("draft", "target")
        sentence = (
            f"the {tuned} is tuned for chat and the {plain} is not, so they will agree less often: "
            "prefer two tuned models or two base models."
        )
        return [Finding("warning", "chat", sentence)]
    if pair.is_chat:
        sentence = "prompts are put into the target's chat template: set chat to 'off' to avoid it."
        return [Finding("good", "chat", sentence)]
    sentence = "the target has no chat template of its own: it continues prompts as plain text."
    return [Finding("good", "chat", sentence)]


def vocabulary_findings(pair: Pair, hint: str = "") -> list[Finding]:
    """What the tokenizers of a pair have in common, the padding of its vocabularies, and its
    end-of-text ids. hint: the hub id of a draft with the target's tokenizer, or ""."""
    if pair.shared is not None:
        return [_translation_finding(pair.shared, hint)]
    pieces = tokenizer_size(pair.tokenizer)
    widths = [logit_width(model) for model in (pair.target, pair.draft)]
    sentence = f"both models use one tokenizer of {pieces:,} pieces: nothing to do."
    found = [Finding("good", "tokenizer", sentence)]
    if set(widths) != {pieces}:
        sentence = (
            f"the target has {widths[0]:,} logits and the draft {widths[1]:,}: ids from "
            f"{pair.vocab:,} on are never drafted or emitted."
        )
        found.append(Finding("good", "vocabulary", sentence))
    return found + _ending_findings(pair)


def _translation_finding(shared: SharedTokens, hint: str) -> Finding:
    better = f"{hint} has" if hint else "a draft with"
    rest = " and" if hint else ""
    sentence = (
        f"the tokenizers differ: the models can race, with {len(shared.pairs):,} of the target's "
        f"{shared.of:,} tokens in common ({shared.share:.0%}), and drafts are translated; {better} "
        f"the target's own tokenizer{rest} would be kept more often."
    )
    return Finding("warning", "tokenizer", sentence)


def _ending_findings(pair: Pair) -> list[Finding]:
    ours, theirs = pair.eos_ids, end_ids(pair.draft)
    if ours == theirs or not ours or not theirs or ours & theirs:
        return []
    names = [
        " or ".join(sorted(map(repr, pair.tokenizer.convert_ids_to_tokens(sorted(ids)))))
        for ids in (ours, theirs)
    ]
    sentence = (
        f"the target ends a text with {names[0]}, the draft with {names[1]}, so the draft will "
        "predict ends badly: prefer two models that were tuned in the same way."
    )
    return [Finding("warning", "special tokens", sentence)]


def size_findings(models: list[ModelMetadata], hint: str) -> list[Finding]:
    """The numbers of parameters and their ratio. hint: the hub id of a better draft, or ""."""
    counts = [parameter_count(one.model) for one in models]
    shown = " and ".join(
        f"{one.source.shown} {shown_count(count)}"
        for one, count in zip(models, counts, strict=True)
    )
    ratio = counts[0] / max(1, counts[1])
    sentence = f"parameters: {shown}; "
    if ratio >= GOOD_RATIO:
        return [Finding("good", "size", f"{sentence}the draft is {ratio:,.0f} times smaller.")]
    better = f"choose {hint}." if hint else "a draft ten times smaller usually pays better."
    if ratio < 1.5:
        sentence += (
            f"a draft about as large as its target, or larger, costs more than it saves: {better}"
        )
    elif ratio < POOR_RATIO:
        sentence += f"a draft only {ratio:.1f} times smaller costs more than it saves: {better}"
    else:
        sentence += f"a draft {ratio:.1f} times smaller must agree often to pay: {better}"
    return [Finding("warning", "size", sentence)]


def mixture_findings(metadata: ModelMetadata) -> list[Finding]:
    """Whether the model is a mixture of experts, which uses a part of its weights per token."""
    config = text_config(metadata.model)
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((n for name in names if isinstance(n := getattr(config, name, None), int)), 0)
    used = getattr(config, "num_experts_per_tok", None)
    if experts < 2 or not isinstance(used, int):
        return []
    sentence = (
        f"{metadata.source.shown} uses {used} of {experts} experts for a token: a pass over one "
        "token costs less than its size suggests, and a pass over several uses more experts, so "
        "expect less speed-up; 8-bit and 4-bit weights do not shrink the experts."
    )
    return [Finding("warning", "size", sentence)]


def memory_findings(
    loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int
) -> list[Finding]:
    """Whether weights and caches fit into the free memory."""
    draft = loads[1] if len(loads) > 1 else None
    try:
        device, _ = place_target(loads[0], draft, devices, tokens)
    except PairError as error:
        return [Finding("stop", "memory", str(error))]
    total = sum(load.bytes(tokens) for load in loads)
    each = ", ".join(
        f"{load.name} {shown_bytes(load.bytes(tokens))} as {load.precision}" for load in loads
    )
    each_free = [memory.free for memory in devices]
    free = max(each_free) if device else sum(each_free)
    where = str(device) if device else f"{len(devices)} GPUs together"
    sentence = (
        f"weights, and caches of {tokens:,} tokens in {LANES} lanes, need {shown_bytes(total)} "
        f"({each}); {where} "
        f"{'has' if device else 'have'} {shown_bytes(free)} free"
    )
    if total > TIGHT * free:
        return [Finding("warning", "memory", f"{sentence}: close other programs first.")]
    return [Finding("good", "memory", f"{sentence}.")]


def table_findings(
    models: list[ModelFacts | HeadFacts],
    options: list[LoadOptions],
    devices: list[DeviceMemory],
    tokens: int,
) -> list[Finding]:
    """Memory according to the table of pairs, for models whose files cannot be read yet. models:
    the target, and perhaps a draft or head whose size is known."""
    cpu, free = devices[0].device.type == "cpu", sum(memory.free for memory in devices)
    target = models[0]
    usual = "float32" if cpu or isinstance(target, HeadFacts) else target.dtype
    named = [one.quantize or str(one.dtype or usual).removeprefix("torch.") for one in options]

    def total(precisions: list[str]) -> int:
        return sum(
            model.bytes(precision, tokens, copies=LANES if model is target else DRAFTING_LANES)
            for model, precision in zip(models, precisions, strict=False)
        )

    sentence = (
        f"by the table of pairs, weights, and caches of {tokens:,} tokens in {LANES} lanes, need "
        f"{shown_bytes(total(named))} as {' and '.join(dict.fromkeys(named))}, and "
        f"{shown_bytes(free)} are free"
    )
    if total(named) <= free:
        return [Finding("good", "memory", f"{sentence}.")]
    fitting = [name for name in smaller_precisions(cpu) if total([name] * len(models)) <= free]
    better = f"choose {fitting[0]}, or a smaller pair" if fitting else "choose a smaller pair"
    return [Finding("stop", "memory", f"{sentence}: {better}.")]


def context_findings(models: list[ModelMetadata]) -> list[Finding]:
    """How long a text may become, and whether the draft can see all of it."""
    limits = [context_length(one.model) for one in models]
    shown = [f"{limit:,} tokens" if limit else "any length" for limit in limits]
    if len(models) == 1:
        return [Finding("good", "context", f"the target sees {shown[0]}.")]
    if limits[1] is not None and (limits[0] is None or limits[1] < limits[0]):
        sentence = (
            f"the draft sees {shown[1]} and the target {shown[0]}: keep texts shorter than the "
            "draft's limit, because longer ones continue without drafts."
        )
        return [Finding("warning", "context", sentence)]
    sentence = f"the target sees {shown[0]}, the draft {shown[1]}."
    return [Finding("good", "context", sentence)]
