"""Findings of the doctor about two models before their weights are read: a function per topic."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, get_args

from ..base.errors import PairError, SpecvizError
from ..core.ends import named_end_ids
from ..core.model_facts import logit_width
from ..core.pair import Pair, tokenizer_size
from .gguf.header import GgufHeader
from .local_models import blob_name
from .memory import COUNTED_LANES, DeviceMemory, PlannedLoad, place_target, shown_bytes, shown_count
from .source import ModelSource

if TYPE_CHECKING:
    from .metadata import ModelMetadata

Level = Literal["good", "warning", "stop"]

GOOD_RATIO = 10.0  # the target's parameters / the draft's
POOR_RATIO = 3.0
TIGHT = 0.9  # needed bytes / free bytes, above which a warning is given
WEIGHTS = re.compile(r"model[^/]*\.safetensors")


@dataclass(frozen=True)
class Finding:
    """The result of one check. sentence: the finding, and what to do about it."""

    level: Level
    topic: str
    sentence: str


good, warning, stop = (partial(Finding, level) for level in get_args(Level))

Findings: TypeAlias = Iterator[Finding]


class Described(Protocol):
    """A model as findings need it, with the properties of `ModelMetadata`."""

    @property
    def source(self) -> ModelSource: ...

    @property
    def parameters(self) -> int: ...

    @property
    def experts(self) -> int | None: ...

    @property
    def context(self) -> int | None: ...

    @property
    def is_chat(self) -> bool: ...


class Examined(NamedTuple):
    """The findings about the models of a pair before their weights are read.

    shown: their names. loads: the planned loads; empty if unknown. parts: those of `Pair.parts`,
    or None if the models could not be read.
    """

    shown: Sequence[str]
    findings: Sequence[Finding]
    loads: list[PlannedLoad]
    parts: Sequence[str] | None


@contextmanager
def stopping(topic: str, findings: list[Finding]) -> Iterator[None]:
    """Turn a `SpecvizError` inside the block into a finding that stops."""
    try:
        yield
    except SpecvizError as error:
        findings.append(stop(topic, str(error)))


def file_findings(source: ModelSource, files: dict[str, int] | None) -> Findings:
    """Whether a model of the hub has safetensors files, and whether they fit on the disk."""
    if files is None:
        return
    sizes = [size for name, size in files.items() if WEIGHTS.fullmatch(name)]
    if not sizes:
        yield warning(
            "files",
            f"{source.shown} has no safetensors on the hub, and pickles are never read: loading "
            "asks the hub's converter for a copy; if there is none, choose another model.",
        )
        return
    from huggingface_hub import constants  # local files do not need it

    cache = Path(constants.HF_HUB_CACHE)
    existing = cache
    while not existing.exists():
        existing = existing.parent
    total = sum(sizes)
    free = shutil.disk_usage(existing).free
    sentence = f"{source.shown} has {shown_bytes(total)} of safetensors"
    cached = f"models--{source.name.replace('/', '--')}/snapshots/*/model*.safetensors"
    if total > free and not any(cache.glob(cached)):
        room = f"and the disk has {shown_bytes(free)} free: delete some files, or set HF_HOME"
        yield warning("files", f"{sentence}, {room}.")
    else:
        yield good("files", f"{sentence} to load.")


def packed_findings(header: GgufHeader, parameters: int, stays: bool) -> Findings:
    """The description of a GGUF file. parameters: tied ones once. stays: whether its weights are
    used in their stored format."""
    file = blob_name(header.path) or header.path.name
    licence = header.text("general.license") or "none"
    has = "without a"
    if header.text("tokenizer.chat_template"):
        has = "with a"
    unpacking = "It is used without unpacking"
    if not stays:
        size = shown_bytes(header.unpacked)
        unpacking = f"It is unpacked once into the cache folder, to {size} of bf16"
    yield good(
        "file",
        f"{file} contains {header.name}: {header.architecture}, {shown_count(parameters)} "
        f"parameters in {header.quantization}, {has} chat template; its licence is {licence}. "
        f"{unpacking}.",
    )


def rollback_findings(metadata: ModelMetadata) -> Findings:
    """Whether rejected tokens can be removed from the caches of this model, or the cost of
    restoring its running states."""
    from ..core.running_states import MAX_CHECKPOINTS, refusal_sentence  # imports transformers

    shown = metadata.source.shown
    caches = metadata.caches
    if caches.refusal is not None:
        sentence = refusal_sentence(metadata.model, caches.refusal)
        yield stop("rollback", f"{shown} cannot race: {sentence}")
        return
    if caches.rolls_back:
        yield good("rollback", f"{shown}'s caches can be rolled back.")
        return
    if caches.state_bytes == 0:
        yield warning(
            "rollback",
            f"{shown} keeps a running state; whether it can be restored is tested when the model "
            "is loaded.",
        )
        return
    keeps = f"{shown} keeps a running state of about {shown_bytes(caches.state_bytes)}"
    if not caches.reads_states:
        yield warning(
            "rollback",
            f"{keeps}, which transformers' passes over several tokens ignore, so each token is "
            "read in a pass of its own: it can draft, but drafts cannot make it faster.",
        )
        return
    yield good(
        "rollback",
        f"{keeps}. After a rejection it is restored, and the next pass reads the kept tokens "
        "again: a few more rows, but no extra pass. For this a target keeps one copy of the "
        f"state, and a draft up to {MAX_CHECKPOINTS}.",
    )


def pair_findings(models: list[ModelMetadata], suggested: str | None) -> Findings:
    """Findings about the target, and perhaps the draft. suggested: the hub id of a known draft, or
    None."""
    hint = ""
    if len(models) > 1:
        target, draft = models
        hint = better_draft(suggested, draft)
        try:
            pair = Pair(target.model, draft.model, target.tokenizer, draft.tokenizer)
            yield from vocabulary_findings(pair, hint)
        except PairError as error:
            sentence = str(error)
            if hint:
                sentence += f" {hint} is a known draft for this target."
            yield stop("tokenizer", sentence)
    yield from model_findings(models, hint)


def better_draft(suggested: str | None, draft: Described) -> str:
    """The hub id of the known draft for a target; "" if there is none, or if it is this draft."""
    if suggested is None or suggested == draft.source.name:
        return ""
    return suggested


def model_findings(models: Sequence[Described], hint: str) -> Findings:
    """Findings about the target, and perhaps the draft, that hold for any tokenizers. hint: the
    hub id of a better draft, or ""."""
    if len(models) > 1:
        yield from size_findings(models, hint)
    yield from mixture_findings(models[0])
    yield from context_findings(models)
    yield from chat_findings(models)


def chat_findings(models: Sequence[Described]) -> Findings:
    """Whether prompts go through a chat template."""
    is_chat = models[0].is_chat
    if any(model.is_chat != is_chat for model in models):
        tuned = "the target is tuned for chat and the draft is not"
        if not is_chat:
            tuned = "the draft is tuned for chat and the target is not"
        yield warning(
            "chat",
            f"{tuned}, so they will agree less often: prefer two tuned models or two base models.",
        )
    elif is_chat:
        yield good(
            "chat",
            "prompts are put into the target's chat template: set chat to 'off' to avoid this.",
        )
    else:
        yield good(
            "chat",
            "the target has no chat template of its own: it continues prompts as plain text.",
        )


def vocabulary_findings(pair: Pair, hint: str = "") -> Findings:
    """Common tokens of a pair's tokenizers, the padding of its vocabularies, and its end-of-text
    ids. hint: the hub id of a draft with the target's tokenizer, or ""."""
    shared = pair.shared
    if shared is not None:
        yield warning(
            "tokenizer",
            f"the tokenizers differ: the models can race, with {len(shared.pairs):,} of the "
            f"target's {shared.target_size:,} tokens in common ({shared.share:.0%}), and drafts "
            f"are translated; {hint or 'a draft'} with the target's tokenizer would be accepted "
            "more often.",
        )
        return
    pieces = tokenizer_size(pair.tokenizer)
    widths = [logit_width(model) for model in (pair.target, pair.draft_model)]
    yield from one_tokenizer_findings(pieces, widths, pair.vocab)
    target_ends = named_end_ids(pair.target, pair.tokenizer)
    draft_ends = named_end_ids(pair.draft_model, pair.draft_tokenizer or pair.tokenizer)
    if target_ends and draft_ends and not target_ends & draft_ends:
        yield warning(
            "special tokens",
            f"the target ends a text with {_ends_in_words(pair, target_ends)}, the draft with "
            f"{_ends_in_words(pair, draft_ends)}, so the draft will predict the end of a text "
            "badly: prefer two models that were tuned in the same way.",
        )


def _ends_in_words(pair: Pair, end_ids: Collection[int]) -> str:
    """The tokens that end a text: "'<|endoftext|>' or '<|im_end|>'"."""
    tokens = pair.tokenizer.convert_ids_to_tokens(sorted(end_ids))
    return " or ".join(sorted(repr(token) for token in tokens))


def one_tokenizer_findings(pieces: int, widths: Sequence[int], vocab: int) -> Findings:
    """Findings about two models with one tokenizer. pieces: of the tokenizer. widths: the models'
    numbers of logits. vocab: the number of used ids."""
    yield good(
        "tokenizer", f"both models use the same tokenizer of {pieces:,} pieces: nothing to do."
    )
    if set(widths) != {pieces}:
        yield good(
            "vocabulary",
            f"the target has {widths[0]:,} logits and the draft {widths[1]:,}: ids of {vocab:,} "
            "or more are never drafted or emitted.",
        )


def size_findings(models: Sequence[Described], hint: str) -> Findings:
    """The numbers of parameters and their ratio. hint: the hub id of a better draft, or ""."""
    target, draft = models
    target_size = shown_count(target.parameters)
    draft_size = shown_count(draft.parameters)
    sizes = f"{target.source.shown} {target_size} and {draft.source.shown} {draft_size}"
    ratio = target.parameters / max(1, draft.parameters)
    if ratio >= GOOD_RATIO:
        yield good("size", f"parameters: {sizes}; the draft is {ratio:,.0f} times smaller.")
        return
    pays = "must be accepted often to pay"
    if ratio < POOR_RATIO:
        pays = "costs more than it saves"
    # The known draft of a target may be the one that was named.
    known_draft = hint.rpartition("/")[2]
    is_known = known_draft == draft.source.shown.rpartition("/")[2]
    advice = "a draft ten times smaller usually pays better."
    if hint and not is_known:
        advice = f"choose {hint}."
    yield warning(
        "size", f"parameters: {sizes}; a draft {ratio:.1f} times smaller {pays}: {advice}"
    )


def mixture_findings(model: Described) -> Findings:
    """Whether the model is a mixture of experts, which uses a part of its weights per token."""
    if model.experts is not None:
        yield warning(
            "size",
            f"{model.source.shown} is a mixture of experts with {model.experts} active per token: "
            "a pass over several tokens uses more of them, so expect less speed-up; 8-bit and "
            "4-bit weights do not make the experts smaller.",
        )


def memory_findings(loads: list[PlannedLoad], devices: list[DeviceMemory], tokens: int) -> Findings:
    """Whether weights and caches fit into the free memory."""
    try:
        device, _ = place_target(loads, devices, tokens)
    except PairError as error:
        yield stop("memory", str(error))
        return
    total = sum(load.bytes(tokens) for load in loads)
    each = ", ".join(load.shown(tokens) for load in loads)
    if device is not None:
        free = max(memory.free for memory in devices)
        who_has = f"{device} has"
    else:
        free = sum(memory.free for memory in devices)
        who_has = f"{len(devices)} GPUs together have"
    sentence = (
        f"weights, and caches of {tokens:,} tokens in {COUNTED_LANES} lanes, need "
        f"{shown_bytes(total)} ({each}); {who_has} {shown_bytes(free)} free"
    )
    if total > TIGHT * free:
        yield warning("memory", f"{sentence}: close other programs first.")
    else:
        yield good("memory", f"{sentence}.")


def context_findings(models: Sequence[Described]) -> Findings:
    """The longest possible text, and whether the draft can see all of it."""
    target_limit = models[0].context
    target_sees = _context_in_words(target_limit)
    if len(models) == 1:
        yield good("context", f"the target sees {target_sees}.")
        return
    draft_limit = models[1].context
    draft_sees = _context_in_words(draft_limit)
    if draft_limit is not None and (target_limit is None or draft_limit < target_limit):
        yield warning(
            "context",
            f"the draft sees {draft_sees} and the target {target_sees}: keep texts shorter than "
            "the draft's limit, because longer ones continue without drafts.",
        )
    else:
        yield good("context", f"the target sees {target_sees}, the draft {draft_sees}.")


def _context_in_words(limit: int | None) -> str:
    if limit is None:
        return "any length"
    return f"{limit:,} tokens"
