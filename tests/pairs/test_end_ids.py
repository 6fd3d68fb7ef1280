"""The ends of texts of a model in a folder: all those named by its config, tokenizer and
template."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from model_families import saved
from toy_models import byte_level, emitted_ids, generated, llama

from specviz import Pair, Settings, baseline, load_pair, race
from specviz.runs.trace import Trace

COUNT = 16  # tokens of a text
PROMPT = [5, 9, 17]
TURNS = "{{% for m in messages %}}[{{{{ m.role }}}}]{{{{ m.content | trim }}}}{end}\n{{% endfor %}}"

IN_PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{{ part.text }}{% endfor %}"
    "<turn over>\n{% endfor %}"
)
REPLIES_IN_TEXT = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'user' %}{{ m.content[0].text.strip() }}"
    "{% else %}{{ m.content.strip() }}{% endif %}<turn over>\n{% endfor %}"
)


class Family(NamedTuple):
    """A model family. special: its control tokens. named, spoken: the end that its config names,
    and the one that its tokenizer names. template: a chat template, or None. ends: all tokens that
    end a text."""

    special: tuple[str, ...]
    named: str
    spoken: str | None
    template: str | None
    ends: set[str]


FAMILIES = {
    "Llama 3": Family(
        ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
        "<|end_of_text|>",
        "<|end_of_text|>",
        None,
        {"<|end_of_text|>", "<|eot_id|>"},
    ),
    "Gemma": Family(
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "<eos>",
        None,
        {"<eos>", "<end_of_turn>"},
    ),
    "Qwen": Family(
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_middle|>"),
        "<|im_end|>",
        "<|im_end|>",
        None,
        {"<|endoftext|>", "<|im_end|>"},
    ),
    "a tokenizer's own": Family(("<a>", "<b>", "<c>"), "<a>", "<b>", None, {"<a>", "<b>"}),
    "a template's own": Family(
        ("<a>", "<b>", "<turn over>"),
        "<a>",
        None,
        TURNS.format(end="<turn over>"),
        {"<a>", "<turn over>"},
    ),
    "a template for lists of parts": Family(
        ("<a>", "<b>", "<turn over>"), "<a>", None, IN_PARTS, {"<a>", "<turn over>"}
    ),
    "a template whose replies are texts": Family(
        ("<a>", "<b>", "<turn over>"), "<a>", None, REPLIES_IN_TEXT, {"<a>", "<turn over>"}
    ),
    "replies of several messages": Family(
        ("<|start|>", "<|end|>", "<|return|>", "<|call|>"),
        "<|return|>",
        None,
        None,
        {"<|return|>", "<|call|>"},
    ),
    "a template without a sign": Family(("<a>", "<b>"), "<a>", None, TURNS.format(end=""), {"<a>"}),
    "a template that fails": Family(("<a>", "<b>"), "<a>", None, "{{ messages.none.x }}", {"<a>"}),
}
CASES = [(name, end) for name, family in FAMILIES.items() for end in sorted(family.ends)]


def folder_of(place: Path, family: Family, says: str | None = None) -> Path:
    """Save a tiny model that writes the control token `says` within a text."""
    tokenizer = byte_level(300, special=family.special)
    tokenizer.eos_token = family.spoken
    tokenizer.chat_template = family.template
    named = tokenizer.convert_tokens_to_ids(family.named)
    model = llama(300, seed=3, eos_token_id=named)
    if says is not None:
        model.generation_config.eos_token_id = None
        written = generated(model, PROMPT, COUNT)
        model.generation_config.eos_token_id = named
        special = len(family.special)
        place_of = next(
            i for i in range(2, COUNT) if written[i] >= special and written[i] not in written[:i]
        )
        rows = [written[place_of], tokenizer.convert_tokens_to_ids(says)]
        with torch.no_grad():
            model.lm_head.weight[rows] = model.lm_head.weight[rows[::-1]]
    return saved(place, model, tokenizer)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_all_that_a_folder_names_ends_a_text(family: Family, tmp_path: Path) -> None:
    pair = load_pair(f"{folder_of(tmp_path, family)}+none")
    assert {pair.tokenizer.convert_ids_to_tokens(i) for i in pair.eos_ids} == family.ends


@pytest.mark.parametrize(("family", "end"), CASES)
def test_a_text_stops_at_each_end_in_both_lanes(family: str, end: str, tmp_path: Path) -> None:
    pair = load_pair(f"{folder_of(tmp_path, FAMILIES[family], end)}+none")
    settings = Settings(drafter="ngram", max_new_tokens=COUNT)
    run = Trace.from_events(race(pair, PROMPT, settings))
    for lane in ("speculative", "baseline"):
        ids = emitted_ids(run.lane(lane))
        assert 2 < len(ids) < COUNT and ids[-1] in pair.eos_ids
        assert pair.tokenizer.convert_ids_to_tokens(ids[-1]) == end
        assert not pair.eos_ids & {*ids[:-1]}
    assert run.end is not None and run.end.reasons == {"speculative": "eos", "baseline": "eos"}
    on = emitted_ids(baseline(pair, PROMPT, settings, ignore_eos=True))
    assert len(on) == COUNT, "the text goes on behind an end where that is asked for"


def test_ends_are_translated_to_those_of_a_draft_with_another_tokenizer(tmp_path: Path) -> None:
    """Ends with the same spelling correspond; the others become the draft's lowest end."""
    target = ("<|begin|>", "<|endoftext|>", "<|eot_id|>")
    draft = ("<|im_end|>", "<pad>", "<|endoftext|>", "<s>")
    models = [
        llama(300 + 40 * i, seed=i, eos_token_id=special.index("<|endoftext|>"))
        for i, special in enumerate((target, draft))
    ]
    tokenizers = [byte_level(300 + 40 * i, special=s) for i, s in enumerate((target, draft))]
    pair = Pair(*models, *tokenizers)
    assert pair.eos_ids == {1, 2} and pair.shared is not None
    assert pair.shared.to_draft[1] == 2 and pair.shared.to_draft[2] == 0
