"""The tokens of a text that a draft would have guessed: they give the rounds of a real lane
afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import byte_level, examples, llama, pair_of, relative

from specviz import Settings, Trace, compute_metrics, race
from specviz.base.errors import PairError, PromptError
from specviz.core.engine_choice import eager_only
from specviz.inspect.guess import Guess, Guesses, _text, draft_of, guesses

PROMPT = [1, 2, 3]


@pytest.fixture(autouse=True)
def plain_passes() -> Iterator[None]:
    with eager_only():
        yield


@pytest.fixture(scope="module")
def traces() -> tuple[Any, dict[int, Trace]]:
    """A pair whose draft is often wrong, and its greedy races with two gammas."""
    target = llama(64, seed=2)
    pair = pair_of(target, relative(target, noise=0.1))
    with eager_only():
        return pair, {
            gamma: Trace.from_events(
                list(race(pair, PROMPT, Settings(gamma=gamma, max_new_tokens=70, ignore_eos=True)))
            )
            for gamma in (1, 4)
        }


def test_the_would_be_rounds_are_those_of_a_real_lane(traces: tuple[Any, dict[int, Trace]]):
    pair, by_gamma = traces
    for gamma, trace in by_gamma.items():
        prompt = pair.tokenizer.decode(PROMPT)
        found = guesses(draft_of(pair), trace.text("baseline"), prompt, continues=True)
        its = found.would_be(gamma)
        m = compute_metrics(trace)
        assert its["rounds"] == [len(r.emitted) for r in trace.lane("speculative")]
        assert (its["alpha"], its["tau"]) == (m.alpha, m.tau)
        assert 0 < its["right"] < its["judged"] and its["right"] == m.counts["accepted"]
        assert found.right == sum(one.guess.split() == one.text.split() for one in found.places)
        assert all(one.q_guess >= one.q_text for one in found.places)


def test_a_model_guesses_its_own_greedy_text(traces: tuple[Any, dict[int, Trace]]):
    pair, by_gamma = traces
    alone = pair_of(pair.target)
    text = by_gamma[1].text("baseline")
    prompt = pair.tokenizer.decode(PROMPT)
    found = guesses(alone, text, prompt, continues=True)
    assert found.right == len(found.places) == 70
    assert found.would_be(4)["alpha"] == 1.0 and found.would_be(4)["tau"] == 5.0


@examples(60)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 9))
def test_the_counts_add_up(right: list[bool], gamma: int):
    places = tuple(Guess("a", "a" if one else "b", one, 0.5, 0.5) for one in right)
    its = Guesses("draft", "", 0, places).would_be(gamma)
    assert sum(its["rounds"]) == len(right) == its["right"] + len(its["rounds"])
    assert its["right"] <= its["judged"] <= its["right"] + len(its["rounds"])
    assert all(1 <= one <= gamma + 1 for one in its["rounds"])
    assert (its["tau"] is None) == (not right)


def test_what_cannot_be_guessed_is_left_out_or_refused():
    draft = pair_of(llama(300, max_position_embeddings=12), tokenizer=byte_level())
    text = "naïve 日本 🙂 the cat sat on the mat"
    found = guesses(draft, text)
    ids = draft.text_ids(text)
    assert len(found.places) == 11 and found.left_out == len(ids) - 12 > 0
    assert text.startswith("".join(one.text for one in found.places))
    assert found.places[0].text == "naïve"  # the first token alone ends inside a character
    answered = guesses(draft, "the cat", "don't")  # with a blank line between them
    assert answered.before == "" and len(answered.places) == len(draft.text_ids("the cat"))
    for empty in ("", "n", " the"):
        with pytest.raises(PromptError, match="nothing to guess"):
            guesses(draft, empty)
    with pytest.raises(PairError, match="no draft model"):
        draft_of(draft)


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "answer.txt"
    for raw in ("\ufeffThe cat\n", "\ufeffThe cat", "The cat\r\n"):
        file.write_bytes(raw.encode())
        assert _text(str(file)) == "The cat"
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw.encode()), "utf-8"))
        assert _text("-") == "The cat"
