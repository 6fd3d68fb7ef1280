"""What may stand in the place of a draft and reads the target's states: all kinds of heads, and
what the doctor finds about them before their weights are read."""

from __future__ import annotations

import transformers

from ...errors import PairError
from ..findings import (
    Finding,
    Findings,
    access_findings,
    file_findings,
    good,
    stopping,
    warning,
)
from ..hub import failure_sentence, find_source, folder_weights, hub_listing, no_safetensors
from ..memory import shown_bytes, shown_count
from ..metadata import HeadMetadata, ModelMetadata
from ..pair import context_length, text_config
from ..spec import OWN_LAYERS
from ..table import Facts, known_head
from . import library
from .eagle import HeadConfig
from .eagle_files import config_values, is_eagle, read_head


def is_head(name: str) -> bool:
    """Whether a pair's second name is that of a head, and not of a draft model."""
    values = {} if name == OWN_LAYERS else config_values(name)
    return name == OWN_LAYERS or is_eagle(values) or values.get("model_type") in library.ASSISTANTS


def read_any_head(name: str, target: ModelMetadata) -> HeadMetadata | None:
    """The metadata of the head with this hub id or folder, or of the target's own layers if the
    name is "mtp"; None if it is a draft model.

    Raises `PairError` if it is damaged, of a kind that is not known, or made for another target.
    """
    if name == OWN_LAYERS:
        return library.read_mtp(target)
    values = config_values(name)
    if values.get("model_type") in library.ASSISTANTS:
        return library.read_assistant(find_source(name), target.model)
    return read_head(find_source(name), values, target.model) if is_eagle(values) else None


def examined_head(
    name: str, target: ModelMetadata | None, found: list[Finding]
) -> HeadMetadata | None:
    """The metadata of a head, or None if it cannot be used; adds the findings about it alone.
    target: None if that could not be read."""
    with stopping("head", found):
        if name != OWN_LAYERS:
            found += _source_findings(name)
        if target is None:
            return None
        if head := read_any_head(name, target):
            return head
        # It is known as a head: its config is unreadable.
        raise PairError(failure_sentence(find_source(name), PairError()))
    return None


def _source_findings(name: str) -> Findings:
    """What is known of a head's files. Raises `PairError` if it cannot be loaded from them."""
    source = find_source(name)
    listing, facts = hub_listing(source), known_head(name)
    yield from access_findings(source, listing, readable=True)
    files = set() if listing is None else set(listing.files)
    if source.folder is not None:
        folder_weights(source)
    elif listing is None and facts:
        yield _table_finding(facts)
        if facts.safetensors is False:
            raise PairError(no_safetensors(source.shown, {"pytorch_model.bin"}))
    elif listing and not any(file.endswith(".safetensors") for file in files):
        raise PairError(no_safetensors(source.shown, files))
    yield from file_findings(source, listing)


def head_findings(head: HeadMetadata, target: ModelMetadata) -> Findings:
    """What a head reads, which tokens it can draft, and what it was made for."""
    if isinstance(head.form, HeadConfig):
        yield from _eagle_findings(head, target)
        return
    shown, parameters = head.source.shown, shown_count(head.need.parameters)
    config = head.form.config
    if config.model_type not in library.ASSISTANTS:
        count = len(head.form.layers)
        trained = "token is" if count == 1 else f"{count} tokens are"
        yield good(
            "head",
            f"{shown} has {library.counted(count)} of {parameters} parameters: choose the drafter "
            f"'head'. Of a draft run the first {trained} what it was trained for; further ones "
            "rest on its own output, so a small gamma may be best.",
        )
        return
    yield good(
        "head",
        f"{shown} is an assistant of {parameters} parameters: it reads the target's last state and "
        "its cache; choose the drafter 'head'.",
    )
    if library.asks_sharing_modes(config):
        yield good(
            "version",
            f"transformers {transformers.__version__} does not build assistants by itself, since "
            "it asks their config for a layer that keeps keys: here it gets the answer that it "
            "needs, so nothing is to be done.",
        )
    if config.use_ordered_embeddings:
        whole = text_config(head.form).vocab_size
        scored = whole // config.num_centroids * config.centroid_intermediate_top_k
        yield good(
            "vocabulary",
            f"at each place the assistant scores the {scored:,} likeliest of {whole:,} tokens, and "
            "all others share one low score: the text stays exact.",
        )


def own_layers_findings(target: ModelMetadata) -> Findings:
    """What a target's own multi-token prediction layers are good for here, if it has any."""
    if not (count := library.mtp_count(target.config)):
        return
    if library.runnable(target.model) is None:
        yield good("head", library.dropped_sentence(target))
    else:
        yield good(
            "head",
            f"{target.source.shown} names {library.counted(count)} in its config: "
            f"'{OWN_LAYERS}' in the place of the draft lets them draft.",
        )


def _eagle_findings(head: HeadMetadata, target: ModelMetadata) -> Findings:
    shown, config = head.source.shown, head.form
    places = ", ".join(map(str, config.states))
    yield good(
        "head",
        f"{shown} is an EAGLE-3 head of {shown_count(head.need.parameters)} parameters: it reads "
        f"the target's states after {places} of its {text_config(target.model).num_hidden_layers} "
        "layers; choose the drafter 'head'.",
    )
    drafted, whole = config.draft_vocab, config.layer.vocab_size
    if drafted == whole:
        yield good("vocabulary", "the head can draft every token of the target.")
    else:
        yield good(
            "vocabulary",
            f"the head can draft {drafted:,} of the target's {whole:,} tokens: the others only the "
            "target writes, and the text stays exact.",
        )
    ours, made_for = target.source.shown.rpartition("/")[2], head.made_for
    if isinstance(made_for, str) and made_for and made_for.rpartition("/")[2] != ours:
        yield warning(
            "head",
            f"{shown} was trained for {made_for}: on another target its drafts are kept less "
            "often, though the text stays exact.",
        )
    own, theirs = config.layer.max_position_embeddings, context_length(target.model)
    if theirs is None or own < theirs:
        yield good(
            "context",
            f"{shown} was made for texts of {own:,} tokens: in longer ones its drafts may be kept "
            "less often.",
        )


def _table_finding(facts: Facts) -> Finding:
    """What the table says of a head whose files cannot be read now."""
    known = {
        "parameters": facts.parameters and f"{shown_count(facts.parameters)} parameters",
        "width": facts.hidden and f"states of width {facts.hidden:,}",
        "vocabulary": facts.vocabulary and f"{facts.vocabulary:,} tokens that it can draft",
        "file": facts.file and f"a file of {shown_bytes(facts.file)}",
        "licence": facts.licence and f"the licence {facts.licence}",
    }
    sentence = f"by the table of pairs, {facts.name} is a head in the format {facts.format}"
    if said := ", ".join(text for text in known.values() if text):
        sentence += f", with {said}"
    if unknown := ", ".join(name for name, text in known.items() if not text):
        sentence += f"; unknown until the hub is asked: {unknown}"
    return good("head", f"{sentence}.")
