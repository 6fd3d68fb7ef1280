"""Findings of the doctor about heads on the target, before their weights are read."""

from __future__ import annotations

import transformers

from ...errors import PairError
from ..findings import Finding, access_findings, file_findings, good, stop, warning
from ..hub import failure_sentence, find_source, hub_listing
from ..metadata import ModelMetadata
from ..pair import context_length, text_config
from ..sizes import shown_bytes, shown_count
from ..spec import OWN_LAYERS
from ..table import HeadFacts, known_head
from ..weight_headers import folder_weights, no_safetensors
from .assistant import AssistantMetadata, asks_sharing_modes
from .eagle_files import HeadMetadata
from .kinds import AnyMetadata, read_any_head
from .mtp import MtpMetadata, counted, dropped_sentence, mtp_count, runnable


def examined_head(
    name: str, target: ModelMetadata | None, found: list[Finding]
) -> AnyMetadata | None:
    """The metadata of a head, or None if it cannot be used; adds the findings about it alone.
    target: None if that could not be read."""
    if name == OWN_LAYERS:
        return _read(name, target, found) if target is not None else None
    source = find_source(name)
    listing = hub_listing(source)
    found += access_findings(source, listing, readable=True)
    facts = known_head(name)
    try:
        if source.folder is not None:
            folder_weights(source)
        elif listing is None and facts:
            found += _table_findings(facts)
            if facts.safetensors is False:
                raise PairError(no_safetensors(source.shown, {"pytorch_model.bin"}))
        elif listing and not any(file.endswith(".safetensors") for file in listing.files):
            raise PairError(no_safetensors(source.shown, set(listing.files)))
    except PairError as error:
        found += stop("head", str(error))
        return None
    found += file_findings(source, listing)
    return _read(name, target, found) if target is not None else None


def _read(name: str, target: ModelMetadata, found: list[Finding]) -> AnyMetadata | None:
    try:
        head = read_any_head(name, target)
        if head is None:  # it is known as a head, but its config cannot be read
            raise PairError(failure_sentence(find_source(name), PairError()))
        return head
    except PairError as error:
        found += stop("head", str(error))
        return None


def head_findings(head: AnyMetadata | None, target: ModelMetadata) -> list[Finding]:
    """What a head reads, which tokens it can draft, and what it was made for."""
    if isinstance(head, MtpMetadata):
        return _layers_findings(head)
    if isinstance(head, AssistantMetadata):
        return _assistant_findings(head)
    return _eagle_findings(head, target) if head is not None else []


def own_layers_findings(target: ModelMetadata) -> list[Finding]:
    """What a target's own multi-token prediction layers are good for here, if it has any."""
    if not mtp_count(target.config):
        return []
    if runnable(target.model) is None:
        return good("head", dropped_sentence(target))
    return good(
        "head",
        f"{target.source.shown} names {counted(mtp_count(target.config))} in its config: "
        f"'{OWN_LAYERS}' in the place of the draft lets them draft.",
    )


def _layers_findings(head: MtpMetadata) -> list[Finding]:
    count = len(head.model.layers)
    return good(
        "head",
        f"{head.source.shown} has {counted(count)} of {shown_count(head.need.parameters)} "
        f"parameters: choose the drafter 'head'. Of a draft run the first "
        f"{'token is' if count == 1 else f'{count} tokens are'} what it was trained for; further "
        "ones rest on its own output, so a small gamma may be best.",
    )


def _assistant_findings(head: AssistantMetadata) -> list[Finding]:
    found = good(
        "head",
        f"{head.source.shown} is an assistant of {shown_count(head.need.parameters)} parameters: "
        "it reads the target's last state and its cache; choose the drafter 'head'.",
    )
    if asks_sharing_modes(head.config):
        found += good(
            "version",
            f"transformers {transformers.__version__} does not build assistants by itself, since "
            "it asks their config for a layer that keeps keys: here it gets the answer that it "
            "needs, so nothing is to be done.",
        )
    if head.config.use_ordered_embeddings:
        whole = text_config(head.model).vocab_size
        scored = whole // head.config.num_centroids * head.config.centroid_intermediate_top_k
        found += good(
            "vocabulary",
            f"at each place the assistant scores the {scored:,} likeliest of {whole:,} tokens, and "
            "all others share one low score: the text stays exact.",
        )
    return found


def _eagle_findings(head: HeadMetadata, target: ModelMetadata) -> list[Finding]:
    shown, config = head.source.shown, head.config
    places = ", ".join(map(str, config.states))
    found = good(
        "head",
        f"{shown} is an EAGLE-3 head of {shown_count(head.need.parameters)} parameters: it reads "
        f"the target's states after {places} of its {text_config(target.model).num_hidden_layers} "
        "layers; choose the drafter 'head'.",
    )
    drafted, whole = config.draft_vocab, config.layer.vocab_size
    if drafted == whole:
        found += good("vocabulary", "the head can draft every token of the target.")
    else:
        found += good(
            "vocabulary",
            f"the head can draft {drafted:,} of the target's {whole:,} tokens: the others only the "
            "target writes, and the text stays exact.",
        )
    made_for = _made_for(head)
    if made_for and made_for.rpartition("/")[2] != target.source.shown.rpartition("/")[2]:
        found += warning(
            "head",
            f"{shown} was trained for {made_for}: on another target its drafts are kept less "
            "often, though the text stays exact.",
        )
    own, theirs = config.layer.max_position_embeddings, context_length(target.model)
    if theirs is None or own < theirs:
        found += good(
            "context",
            f"{shown} was made for texts of {own:,} tokens: in longer ones its drafts may be kept "
            "less often.",
        )
    return found


def _table_findings(facts: HeadFacts) -> list[Finding]:
    """What the table says of a head whose files cannot be read now."""
    known = {
        "parameters": facts.parameters and f"{shown_count(facts.parameters)} parameters",
        "width": facts.hidden and f"states of width {facts.hidden:,}",
        "vocabulary": facts.vocabulary and f"{facts.vocabulary:,} tokens that it can draft",
        "file": facts.file and f"a file of {shown_bytes(facts.file)}",
        "licence": facts.licence and f"the licence {facts.licence}",
    }
    said = [text for text in known.values() if text]
    sentence = f"by the table of pairs, {facts.name} is a head in the format {facts.format}"
    if said:
        sentence += f", with {', '.join(said)}"
    unknown = [name for name, text in known.items() if not text]
    if unknown:
        sentence += f"; unknown until the hub is asked: {', '.join(unknown)}"
    return good("head", f"{sentence}.")


def _made_for(head: HeadMetadata) -> str:
    """The hub id of the target that a head names as its own, or ""."""
    made = head.values.get("speculators_config")
    verifier = made.get("verifier") if isinstance(made, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) else ""
