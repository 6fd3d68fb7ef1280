"""Loading of pairs by name from folders in the hub's format, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentences import Sentences
from toy_models import emitted_ids, llama, mini, words

from specviz import Settings, load_pair, speculate
from specviz.base.environment import ASSETS, has_numba
from specviz.base.errors import PairError
from specviz.pairs.doctor import examine


def saved(folder: Path, seed: int = 0, vocab: int = 8, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Save a model and its tokenizer with `save_pretrained`."""
    llama(vocab, seed=seed).to(dtype).save_pretrained(folder)
    words(vocab).save_pretrained(folder)
    return folder


def test_two_folders_make_a_pair(tmp_path: Path):
    name = f"{saved(tmp_path / 'one')}+{saved(tmp_path / 'two', seed=1)}"
    pair = load_pair(name)
    assert pair.name == name and pair.vocab == 8
    assert not pair.target.training and not pair.draft.training
    if pair.device.type == "cpu":
        # In the stored dtype if compiled passes read it, otherwise in fp32.
        stored = torch.bfloat16 if has_numba() else torch.float32
        assert pair.target.dtype == pair.draft.dtype == stored
    rounds = list(speculate(pair, "w1 w2", Settings(max_new_tokens=9)))
    assert len(emitted_ids(rounds)) == 9 and any(r.drafted for r in rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_a_processor_no_weight_is_rounded(tmp_path: Path, dtype: torch.dtype):
    """Compiled passes read weights in their stored dtype; other passes use fp32."""
    folder = saved(tmp_path / "one", dtype=dtype)
    kept = load_file(folder / "model.safetensors")
    target = load_pair(f"{folder}+none", device="cpu").target
    assert target.dtype in (dtype, torch.float32)
    for name, weight in target.state_dict().items():
        assert torch.equal(weight.float(), kept[name].float()), name


def test_spaces_around_names_do_not_matter(tmp_path: Path):
    names = [str(saved(tmp_path / name)) for name in ("one", "two")]
    assert load_pair(f" {names[0]} + {names[1]} ").name == "+".join(names)


@pytest.mark.parametrize("name", ["", "+", "one", "one+", "+two", "  +  "])
def test_an_invalid_pair_name_is_rejected_with_the_valid_forms(name: str, sentences: Sentences):
    with sentences.raises(PairError):
        load_pair(name)


def test_a_folder_that_is_missing_is_named_without_its_path(tmp_path: Path, sentences: Sentences):
    with sentences.raises(PairError):
        load_pair(f"{tmp_path / 'nowhere'}+{tmp_path / 'nowhere'}")


def test_an_empty_folder_is_rejected(tmp_path: Path, sentences: Sentences):
    (tmp_path / "empty").mkdir()
    with sentences.raises(PairError):
        load_pair(f"{tmp_path / 'empty'}+{tmp_path / 'empty'}")


@pytest.mark.parametrize("lost", ["tokenizer.json", "model.safetensors", "config.json"])
def test_a_folder_that_lacks_a_part_is_rejected(tmp_path: Path, lost: str):
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    (bad / lost).unlink()
    for name in (f"{good}+{bad}", f"{bad}+{good}"):
        with pytest.raises(PairError, match=r"^bad "):
            load_pair(name)


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\x01", b"[]", b"null", b"{}"])
@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_rejected(tmp_path: Path, damaged: str, content: bytes):
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    (bad / damaged).write_bytes(content)
    with pytest.raises(PairError, match=r"^bad "):
        load_pair(f"{good}+{bad}")


@pytest.mark.parametrize("layers", [-1, 10**9])
def test_a_number_of_layers_that_no_model_has_is_rejected(tmp_path: Path, layers: int):
    """The number is rejected before the model is made, which would take hours."""
    for role in ("target", "draft"):
        target = saved(tmp_path / role / "one")
        draft = saved(tmp_path / role / "two")
        path = (target if role == "target" else draft) / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "num_hidden_layers": layers}))
        with pytest.raises(PairError, match=re.escape(f"num_hidden_layers {layers:.6g}")):
            load_pair(f"{target}+{draft}")
        assert examine(str(target), str(draft)).verdict == "stop"


@pytest.mark.parametrize("start", ["", "a/", "/", "~", "\0"])
def test_a_name_of_5000_characters_is_rejected_with_a_short_sentence(
    start: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("specviz.files.hub.hub_is_reachable", lambda: False)
    name = start + "x" * 5000
    for asked in (name, f"{name}+none", f"{name}+{name}"):
        with pytest.raises(PairError) as caught:
            load_pair(asked)
        assert len(str(caught.value)) < 600
    assert examine(name, name).verdict == "stop"


def test_weights_of_the_wrong_shape_are_rejected(tmp_path: Path):
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    config = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))
    with pytest.raises(PairError, match=r"^bad "):
        load_pair(f"{good}+{bad}")


def test_pickled_weights_are_never_read(tmp_path: Path):
    """A pickle can run any code while it loads."""
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    torch.save(load_file(bad / "model.safetensors"), bad / "pytorch_model.bin")
    (bad / "model.safetensors").unlink()
    with pytest.raises(PairError, match=r"^bad "):
        load_pair(f"{good}+{bad}")


def test_a_repository_with_its_own_code_does_not_run_it(tmp_path: Path):
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    config = json.loads((bad / "config.json").read_text())
    del config["model_type"]
    config["auto_map"] = {
        "AutoConfig": "own.OwnConfig",
        "AutoModelForCausalLM": "own.OwnModel",
    }
    (bad / "config.json").write_text(json.dumps(config))
    (bad / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    with pytest.raises(PairError, match=r"^bad "):
        load_pair(f"{good}+{bad}")
    assert not (tmp_path / "ran").exists()


def test_a_model_of_another_kind_is_rejected(tmp_path: Path, sentences: Sentences):
    from transformers import T5Config, T5ForConditionalGeneration

    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    sizes = dict(vocab_size=8, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(bad)
    with sentences.raises(PairError):
        load_pair(f"{bad}+{good}")


def test_a_model_type_that_transformers_does_not_know_is_rejected(
    tmp_path: Path, sentences: Sentences
):
    good = saved(tmp_path / "good")
    bad = saved(tmp_path / "bad")
    mini(8).save_pretrained(bad)
    with sentences.raises(PairError):
        load_pair(f"{good}+{bad}")


def test_two_tokenizers_are_loaded_to_be_translated(tmp_path: Path):
    one = saved(tmp_path / "one")
    two = saved(tmp_path / "two")
    text = (two / "tokenizer.json").read_text()
    swapped = text.replace('"w5"', '"?"').replace('"w6"', '"w5"').replace('"?"', '"w6"')
    (two / "tokenizer.json").write_text(swapped)
    assert load_pair(f"{one}+{two}").shared.to_draft[5] == 6


@pytest.mark.skipif(not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here")
def test_the_built_in_pair_writes_and_its_draft_agrees_with_it():
    pair = load_pair()
    rounds = list(speculate(pair, "It was a bright cold morning", Settings(max_new_tokens=32)))
    assert len(emitted_ids(rounds)) <= 32
    accepted = sum(t.outcome == "accepted" for r in rounds for t in r.drafted)
    assert accepted >= len(rounds), "a useful draft has at least one token accepted per round"


def test_the_target_of_a_row_may_stand_before_a_plus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    alone = load_pair("builtin+none")
    assert alone.draft is None and "ngram" in alone.drafters
    settings = Settings(max_new_tokens=12, drafter="none")
    runs = [speculate(one, "Once upon", settings) for one in (alone, load_pair("builtin"))]
    first, second = ([token.id for r in run for token in r.emitted] for run in runs)
    assert first == second
    headed = load_pair(f"builtin+{ASSETS / 'pair' / 'head'}")
    assert headed.drafters[0] == "head" and headed.draft is None
    (tmp_path / "builtin").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairError, match="builtin"):
        load_pair("builtin+none")  # a folder of this name comes first
