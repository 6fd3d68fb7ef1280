"""Drafts of a model with another tokenizer than the target's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from bare_rounds import bare_rounds, short_texts
from reference_distribution import chain_p_value, continuation_distribution, p_value
from sentences import Sentences
from toy_models import (
    CORPUS,
    byte_level,
    emitted_ids,
    emitted_text,
    finish,
    generated,
    llama,
    metaspace,
    mini,
    next_logits,
    pair_of,
    tokenizer_of,
    words,
)
from transformers import PreTrainedTokenizerFast

from specviz import Pair, Settings, Trace, load_pair, race, speculate
from specviz.base.errors import PairError
from specviz.core.loop import start_lane
from specviz.core.model_facts import cache_argument
from specviz.core.pair import tokenizer_size
from specviz.core.paths import make_context
from specviz.core.shared_tokens import Spelling, spelling
from specviz.pairs.doctor import examine
from specviz.runs.identities import check_trace
from specviz.sides.model.other_tokenizer import DraftText, SharedTokensDrafter, TextDrafter

SIGNIFICANCE = 1e-4  # failure rate of a right sampler; seeds are fixed, so it never fails
ENDS = ("<|end|>",)
TEXTS = [*CORPUS, "the mat\n\n  sat   on\tthe café 🙂🙃 日本", "<|end|> <s> don't"]


def fine() -> PreTrainedTokenizerFast:
    return byte_level(290, special=ENDS)


def coarse() -> PreTrainedTokenizerFast:
    """A tokenizer with other pieces than `fine`, in another order."""
    return byte_level(330, special=("<s>", "</s>"), corpus=[*CORPUS[::-1], "sat mat cat on the"])


TOKENIZERS = {"byte-level": coarse, "metaspace": metaspace}


def pair_with(draft_tokenizer: Any, **options: Any) -> Pair:
    ours = fine()
    target = llama(tokenizer_size(ours), seed=0, eos_token_id=0, **options)
    draft = llama(tokenizer_size(draft_tokenizer), seed=1, eos_token_id=1)
    return Pair(target, draft, ours, draft_tokenizer)


@pytest.mark.parametrize("make", [fine, coarse, metaspace])
@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_tokens_are_those_of_the_text(make: Any, text: str):
    tokenizer = make()
    known = spelling(tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if "<" not in text:  # special tokens have no text
        assert b"".join(known.texts[i] for i in ids).decode().strip() == text.strip()
    again = known.spell(text.encode())
    assert b"".join(known.texts[i] for i in again).decode() == text
    assert all(known.texts[i] == known.texts[known.ids[known.texts[i]]] for i in known.texts)


def test_tokens_are_paired_by_their_bytes_and_ends_by_their_meaning():
    for make in TOKENIZERS.values():
        pair = pair_with(make())
        shared = pair.shared
        assert shared is not None and pair.vocab == 290 and pair.draft_vocab > 260
        for ours, theirs in shared.pairs:
            if ours != 0:
                assert shared.target.texts[ours] == shared.draft.texts[theirs]
        assert len(shared.to_draft) == len(shared.to_target) == len(shared.pairs) > 100
    assert pair_with(coarse()).shared.to_draft[0] == 1, "both end a text"
    by_piece = {piece: i for piece, i in metaspace().get_vocab().items()}
    shared = pair_with(metaspace()).shared
    ours = fine().get_vocab()
    spaced = [p for p in ours if p[0] == "Ġ" and len(p) > 1 and f"▁{p[1:]}" in by_piece]
    assert spaced
    for piece in spaced:
        assert shared.to_draft[ours[piece]] == by_piece[f"▁{piece[1:]}"]
    assert shared.to_draft[ours["Ċ"]] == by_piece["<0x0A>"]


def test_one_tokenizer_is_not_translated():
    pair = pair_of(llama(8), llama(8, seed=1), draft_tokenizer=words(8))
    assert pair.shared is None and pair.draft_vocab == pair.vocab == 8


def test_too_few_tokens_in_common_are_refused_with_their_number(sentences: Sentences):
    other = tokenizer_of({f"x{i}" if i else "w0": i for i in range(40)})
    with sentences.raises(PairError):
        pair_of(llama(40), llama(40), draft_tokenizer=other)


# Greedy


@pytest.mark.parametrize(
    ("kind", "prompt"),
    [
        ("byte-level", "日本語 café 🙂"),
        ("metaspace", "don't\n\n  stop <|end|>"),
        ("metaspace", "the"),
    ],
)
def test_greedy_text_is_the_targets_own_whatever_the_draft_writes(kind: str, prompt: str):
    pair = pair_with(TOKENIZERS[kind]())
    settings = Settings(gamma=4, max_new_tokens=40, ignore_eos=True)
    trace = Trace.from_events(race(pair, prompt, settings))
    check_trace(Trace.from_dict(trace.to_dict()))
    assert trace.end is not None and trace.end.identical
    assert trace.header.draft is not None
    assert trace.header.draft["shared"] == len(pair.shared.pairs)
    assert any(r.drafted for r in trace.lane("speculative"))
    pair.target.generation_config.eos_token_id = None
    wanted = generated(pair.target, pair.encode(prompt), 40)
    assert emitted_ids(trace.lane("speculative")) == wanted


class Writer:
    """An engine that continues a text after `begin` bytes, in its own tokens."""

    def __init__(self, known: Spelling, text: bytes, begin: int, vocab: int) -> None:
        self.name = "scripted"
        self.device = torch.device("cpu")
        self.length = 0
        self._known = known
        self._text = text
        self._begin = begin
        self._vocab = vocab
        self.fed: list[int] = []

    @property
    def said(self) -> bytes:
        return b"".join(self._known.texts[i] for i in self.fed)

    def forward(self, ids: torch.Tensor, keep: int, **_: Any) -> torch.Tensor:
        self.fed = [*self.fed[: self.length], *ids.tolist()]
        self.length = len(self.fed)
        row = torch.zeros(1, self._vocab)
        left = self._text[len(self.said) - self._begin :]
        row[0, self._known.spell(left or b" ")[0]] = 9.0
        return row

    def rollback(self, length: int) -> None:
        assert length <= self.length
        self.length = length


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_draft_that_writes_the_targets_text_is_kept_across_unfinished_characters(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    """The text has characters of several tokens, line breaks and spaces, all split differently from
    the target's tokens. The draft reads exactly the written text."""
    theirs = TOKENIZERS[kind]()
    text = " the cat 日本 sat\n\n  on the 🙂 mat"
    pair = pair_with(theirs)
    script = pair.tokenizer(text, add_special_tokens=False)["input_ids"]
    known = pair.shared.draft
    begin = sum(len(known.texts[i]) for i in theirs("don't")["input_ids"])
    writer = Writer(known, text.encode(), begin, pair.draft_vocab)
    monkeypatch.setattr("specviz.sides.model.other_tokenizer.make_engine", lambda *_: writer)
    prompt = pair.encode("don't")
    monkeypatch.setattr(pair.target, "forward", speaking(pair, script, len(prompt)))
    settings = Settings(gamma=4, max_new_tokens=len(script))
    rounds, _ = finish(pair, prompt, settings)
    assert emitted_text(rounds) == text and emitted_ids(rounds) == script
    kept = sum(t.outcome == "accepted" for r in rounds for t in r.drafted)
    assert kept > 0.4 * len(script)
    said = writer.said.decode(errors="ignore").strip()
    assert said.startswith("don't the cat 日本 sat\n\n  on the 🙂")


def test_the_draft_keeps_its_own_tokens_up_to_the_first_that_was_wrong():
    pair = pair_with(coarse())
    known = pair.shared.draft
    end = 0
    prompt = pair.encode("a")
    word = pair.tokenizer("the", add_special_tokens=False)["input_ids"]
    letters = [known.ids[bytes([b])] for b in b"the"]
    spelled = known.spell(b"the")
    assert letters != spelled
    text = DraftText(pair, pair.shared, prompt)
    text.extend([*prompt, *word], letters)
    assert text.ids[-3:] == letters
    text.extend([*prompt, *word, end, *word], [letters[0], *letters])
    assert text.ids[-1 - len(spelled) :] == [pair.shared.to_draft[end], *spelled]


def test_every_token_of_the_target_may_be_drafted():
    pair = pair_with(coarse())
    context = make_context(Settings(), pair.vocab, pair.device, None, "speculative")
    drafter: Any = TextDrafter(pair, context, cast(Any, None))
    texts = {i: text for i, text in pair.shared.target.texts.items() if text.isascii()}
    assert max(texts) > pair.vocab - 9
    for i, text in texts.items():
        assert drafter._encoded([], pair.shared.draft.spell(text)) == [i]


def speaking(pair: Pair, script: list[int], begin: int) -> Any:
    """A forward pass that prefers the scripted token at every position."""
    whole = type(pair.target).forward

    def forward(*values: Any, **options: Any) -> Any:
        cache = options[cache_argument(pair.target)]
        start = cache.get_seq_length()
        count = options["input_ids"].shape[1]
        output = whole(pair.target, *values, **options)
        kept = output.logits.shape[1]
        output.logits.zero_()
        for place in range(kept):
            at = start + count - kept + place + 1 - begin
            output.logits[0, place, script[at] if 0 <= at < len(script) else 0] = 9.0
        return output

    return forward


# Sampling


def small_pair(**config: Any) -> Pair:
    """A pair with six tokens each, of which four are shared, in another order."""
    ours = tokenizer_of({"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "end": 5})
    theirs = tokenizer_of({"x": 0, "d": 1, "a": 2, "c": 3, "y": 4, "b": 5})
    models = (mini(6, seed=seed, spread=2.0, **config) for seed in (2, 3))
    pair = Pair(*models, ours, theirs)
    assert len(pair.shared.pairs) == 4
    return pair


SAMPLED = Settings(gamma=3, temperature=1.0)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_every_draft_the_draft_has_read_the_text_and_its_own_guesses(
    kind: str, temperature: float
):
    pair = pair_with(TOKENIZERS[kind]())
    settings = Settings(gamma=4, temperature=temperature, max_new_tokens=40, ignore_eos=True)
    run = start_lane(pair, pair.encode("the cat sat"), settings, "speculative")
    run.prefill()
    while run.ended is None:
        run.round()
        drafter: Any = run.drafter
        proposed = [] if drafter._proposed is None else drafter._proposed.tolist()
        read = [*drafter._text.ids, *proposed]
        with torch.inference_mode():
            wanted = pair.draft(torch.tensor([read]), use_cache=False).logits[0, -1]
        found = next_logits(drafter.engine, read)
        torch.testing.assert_close(found, wanted[: len(found)], atol=1e-4, rtol=1e-4)


def test_sampled_sequences_follow_the_target():
    pair = small_pair()
    settings = replace(SAMPLED, temperature=0.7, top_k=3, max_new_tokens=5)
    law = continuation_distribution(pair.target, [2, 0], 2, settings)
    samples = list(short_texts(pair, [2, 0], settings, count=300, shown=2))
    assert p_value(samples, law) > SIGNIFICANCE


def chain_fits() -> float:
    """The p-value of one long run of a Markov chain under the target's distribution."""
    pair = small_pair(decay=0.0, max_position_embeddings=3000)
    with bare_rounds():
        ids = emitted_ids(speculate(pair, [2, 0], replace(SAMPLED, max_new_tokens=700)))
    return chain_p_value(pair.target, [0, *ids], SAMPLED)


def test_a_long_run_follows_the_target():
    assert chain_fits() > SIGNIFICANCE


def test_a_q_over_all_tokens_of_the_draft_fails(monkeypatch: pytest.MonkeyPatch):
    """Drafts are drawn from the shared tokens alone, but judged by probabilities that were not
    renormalised."""
    whole_run = SharedTokensDrafter._drafted

    def not_renormalised(self: SharedTokensDrafter, *values: Any) -> Any:
        draft, proposed = whole_run(self, *values)
        return replace(draft, q=draft.q * 0.6), proposed

    monkeypatch.setattr(SharedTokensDrafter, "_drafted", not_renormalised)
    assert chain_fits() < SIGNIFICANCE


def test_only_shared_tokens_are_drafted_and_the_draft_reads_what_was_written():
    pair = pair_with(coarse())
    trace = Trace.from_events(
        race(pair, "the cat", Settings(gamma=3, temperature=1.0, max_new_tokens=60))
    )
    check_trace(Trace.from_dict(trace.to_dict()))
    drafted = [t for r in trace.lane("speculative") for t in r.drafted]
    assert drafted and {t.id for t in drafted} <= pair.shared.to_draft.keys()
    ids = [*trace.header.prompt_ids, *emitted_ids(trace.lane("speculative"))]
    text = DraftText(pair, pair.shared, ids[:2])
    for end in range(3, len(ids) + 1):
        text.extend(ids[:end], [])
    said = b"".join(pair.shared.target.texts.get(i, b"") for i in ids)
    assert b"".join(pair.shared.draft.texts.get(i, b"") for i in text.ids) == said


def test_a_draft_is_drawn_from_the_drafts_own_law_over_shared_tokens(
    monkeypatch: pytest.MonkeyPatch,
):
    """This holds after every verdict: rejected tokens are forgotten, and each id keeps its
    probability."""
    pair = pair_with(coarse())
    seen = []
    settings = Settings(gamma=3, temperature=1.0, max_new_tokens=40, ignore_eos=True)
    whole_run = SharedTokensDrafter._drafted

    def watched(self: SharedTokensDrafter, *values: Any) -> Any:
        draft, proposed = whole_run(self, *values)
        seen.append((list(self._text.ids), draft.q[0].clone()))
        return draft, proposed

    monkeypatch.setattr(SharedTokensDrafter, "_drafted", watched)
    list(speculate(pair, "the cat", settings))
    ours, theirs = torch.tensor(pair.shared.pairs).unbind(-1)
    for ids, q in seen:
        with torch.no_grad():
            logits = pair.draft(input_ids=torch.tensor([ids])).logits[0, -1]
        wanted = torch.zeros(pair.vocab)
        wanted[ours] = torch.softmax(logits[theirs], -1)
        torch.testing.assert_close(q, wanted, atol=1e-4, rtol=1e-3)
    assert len(seen) > 8


def test_of_two_ids_with_one_text_the_ordinary_one_is_written():
    for byte_id in (0, 1):
        known = Spelling({0: b"a", 1: b"a"}, frozenset({byte_id}))
        assert known.spell(b"a") == [1 - byte_id]


# Folders in the hub's format


def test_two_folders_with_two_tokenizers_race_and_the_doctor_says_so(
    tmp_path: Path, sentences: Sentences
):
    pair = pair_with(coarse())
    for model, tokenizer, name in (
        (pair.target, pair.tokenizer, "target"),
        (pair.draft, pair.draft_tokenizer, "draft"),
    ):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    report = examine(str(tmp_path / "target"), str(tmp_path / "draft"))
    (found,) = [f for f in report.findings if f.topic == "tokenizer"]
    assert report.verdict == "warning" and found.level == "warning"
    sentences(found.sentence)
    loaded = load_pair(f"{tmp_path / 'target'}+{tmp_path / 'draft'}")
    assert loaded.shared.pairs == pair.shared.pairs
    for temperature in (0.0, 1.0):
        settings = Settings(gamma=3, max_new_tokens=20, temperature=temperature)
        trace = Trace.from_events(race(loaded, "the cat", settings))
        check_trace(trace)
        assert temperature or trace.end.identical
