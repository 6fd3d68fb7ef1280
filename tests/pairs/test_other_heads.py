"""A target's own prediction layers and assistants of Gemma 4, from folders: loading, the doctor,
and sentences for those that cannot run."""

from __future__ import annotations

import json
from pathlib import Path

from doctor_reports import sentence_about
from model_families import saved_llama
from safetensors.torch import load_file, save_file
from sentences import Sentences
from toy_assistants import assistant_config, assistant_model, saved_pair
from toy_mtp import saved_mellum

from specviz import Settings, load_pair, speculate
from specviz.base.errors import PairError
from specviz.pairs.doctor import examine

SHORT = Settings(drafter="head", max_new_tokens=9, gamma=3)


def test_a_target_with_its_own_layers_loads_by_name(tmp_path: Path, sentences: Sentences):
    folder = tmp_path / "target"
    _, layers = saved_mellum(folder)
    pair = load_pair(f"{folder}+mtp", device="cpu")
    wanted = layers.state_dict()
    loaded = pair.head.model.state_dict()
    assert all(wanted[name].equal(loaded[name]) for name in wanted)
    rounds = list(speculate(pair, [1, 2, 3], SHORT))
    assert any(r.drafted for r in rounds)

    report = examine(str(folder), "mtp")
    sentences(report.summary)  # a mixture of experts, with a warning
    sentences(sentence_about(report, "head", "good"))
    assert report.memory["float32"] > examine(str(folder)).memory["float32"]

    weights = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in weights.items() if not name.startswith("mtp.")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    assert_refused(folder, sentences)


def test_layers_that_transformers_does_not_run_are_refused(tmp_path: Path, sentences: Sentences):
    folder = saved_llama(tmp_path / "target")
    assert_refused(folder, sentences)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_nextn_predict_layers": 2}))
    assert_refused(folder, sentences)
    assert examine(str(folder)).verdict == "good"


def assert_refused(folder: Path, sentences: Sentences) -> None:
    """Check that loading and the doctor refuse the target's own layers with the same sentence."""
    with sentences.raises(PairError, measured=True) as caught:  # it names transformers' version
        load_pair(f"{folder}+mtp", device="cpu")
    assert sentence_about(examine(str(folder), "mtp"), "head", "stop") == str(caught.value)


def test_a_target_with_its_assistant_loads_by_name(tmp_path: Path, sentences: Sentences):
    target, helper = saved_pair(tmp_path)
    pair = load_pair(f"{target}+{helper}", device="cpu")
    assert pair.draft is None and pair.head.name_or_path == str(helper)
    assert any(r.drafted for r in speculate(pair, [1, 2, 3], SHORT))
    report = examine(str(target), str(helper))
    assert report.verdict == "good"
    sentences(sentence_about(report, "head", "good"))

    for changes in (
        {"backbone_hidden_size": 64},
        {"text_config": assistant_config(16).text_config},
    ):
        other = tmp_path / f"other-{'-'.join(changes)}"
        assistant_model(8, **changes).save_pretrained(other)
        with sentences.raises(PairError) as caught:
            load_pair(f"{target}+{other}", device="cpu")
        assert sentence_about(examine(str(target), str(other)), "head", "stop") == str(caught.value)


def test_an_assistant_of_another_family_is_refused(tmp_path: Path, sentences: Sentences):
    _, helper = saved_pair(tmp_path)
    llama = saved_llama(tmp_path / "llama", hidden_size=32)
    with sentences.raises(PairError):
        load_pair(f"{llama}+{helper}", device="cpu")
