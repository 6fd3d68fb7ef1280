"""Findings of the doctor about a head on the target, before its weights are read."""

from __future__ import annotations

from ..errors import PairError
from .catalogue import HeadFacts, known_head
from .findings import Finding, access_findings, file_findings
from .head_files import HeadMetadata, read_head
from .hub import failure_sentence, find_source, hub_listing
from .metadata import ModelMetadata
from .pair import context_length, text_config
from .sizes import shown_bytes, shown_count
from .weight_headers import folder_weights, no_safetensors


def examined_head(
    name: str, target: ModelMetadata | None, found: list[Finding]
) -> HeadMetadata | None:
    """The metadata of a head, or None if it cannot be used; adds the findings about it alone.
    target: None if that could not be read."""
    source = find_source(name)
    listing = hub_listing(source)
    found += access_findings(source, listing, readable=True)
    facts = known_head(name)
    try:
        if source.folder is not None:
            folder_weights(source)
        elif listing is None and facts:
            found.append(_table_finding(facts))
            if facts.safetensors is False:
                raise PairError(no_safetensors(source.shown, {"pytorch_model.bin"}))
        elif listing and not any(file.endswith(".safetensors") for file in listing.files):
            raise PairError(no_safetensors(source.shown, set(listing.files)))
        found += file_findings(source, listing)
        if target is None:
            return None
        head = read_head(name, target.model)
        if head is None:
            raise PairError(failure_sentence(source, PairError()))
        return head
    except PairError as error:
        found.append(Finding("stop", "head", str(error)))
        return None


def head_findings(head: HeadMetadata | None, target: ModelMetadata) -> list[Finding]:
    """Which states a head reads, which tokens it can draft, and what it was made for."""
    if head is None:
        return []
    shown, config = head.source.shown, head.config
    layers = text_config(target.model).num_hidden_layers
    places = ", ".join(map(str, config.states))
    sentence = (
        f"{shown} is an EAGLE-3 head of {shown_count(head.need.parameters)} parameters: it reads "
        f"the target's states after {places} of its {layers} layers; choose the drafter 'head'."
    )
    found = [Finding("good", "head", sentence), _vocabulary(head)]
    made_for = _made_for(head)
    if made_for and made_for.rpartition("/")[2] != target.source.shown.rpartition("/")[2]:
        sentence = (
            f"{shown} was trained for {made_for}: on another target its drafts are kept less "
            "often, though the text stays exact."
        )
        found.append(Finding("warning", "head", sentence))
    own, theirs = config.layer.max_position_embeddings, context_length(target.model)
    if theirs is None or own < theirs:
        sentence = (
            f"{shown} was made for texts of {own:,} tokens: in longer ones its drafts may be kept "
            "less often."
        )
        found.append(Finding("good", "context", sentence))
    return found


def _table_finding(facts: HeadFacts) -> Finding:
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
    return Finding("good", "head", f"{sentence}.")


def _vocabulary(head: HeadMetadata) -> Finding:
    drafted, whole = head.config.draft_vocab, head.config.layer.vocab_size
    if drafted == whole:
        return Finding("good", "vocabulary", "the head can draft every token of the target.")
    sentence = (
        f"the head can draft {drafted:,} of the target's {whole:,} tokens: the others only the "
        "target writes, and the text stays exact."
    )
    return Finding("good", "vocabulary", sentence)


def _made_for(head: HeadMetadata) -> str:
    """The hub id of the target that a head names as its own, or ""."""
    made = head.values.get("speculators_config")
    verifier = made.get("verifier") if isinstance(made, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) else ""
