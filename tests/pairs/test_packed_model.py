"""A model of a GGUF file has the weights of transformers' model, and gets its modules when they are
needed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("numba", reason="numba is not installed, which compiles passes")

from forked_process import run_forked
from tiny_files import CONFIGS, greedy_ids, tiny_file, tiny_model
from transformers import AutoConfig, PreTrainedModel

from specviz import Pair, generate, load_pair
from specviz.core.engine_choice import eager_only
from specviz.core.pair import checked_pair
from specviz.files.gguf.layout import ARCHITECTURES
from specviz.files.metadata import meta_model
from specviz.files.packed_model import PackedModel

PROMPT = [3, 1, 4, 1, 5]
COUNT = 6
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "vocab_size": 320,
    "rms_norm_eps": 3e-6,
    "eos_token_id": [7, 9],
}
ROPES = [
    {"rope_type": "default", "rope_theta": 10_000.0},
    {"rope_type": "default", "rope_theta": 1_000_000.0},
    {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
]


def file_pair(path: Path) -> Pair:
    return checked_pair(load_pair(f"{path}+none"))


def written(pair: Pair) -> str:
    return generate(pair, PROMPT, max_new_tokens=COUNT).text


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose passes were already tried: a trial would call modules."""
    file = tiny_file(tmp_path_factory.mktemp("file"), "Q4_K", architecture="qwen2").path
    written(file_pair(file))
    return file


@pytest.fixture
def pair(path: Path) -> Pair:
    """A pair of that file whose modules were never called."""
    return file_pair(path)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_has_the_weights_of_transformers_model(architecture: str, bias: bool, tied: bool):
    has = {"tie_word_embeddings": tied, "attention_bias": bias}
    config = AutoConfig.for_model(architecture, **SIZES, **has)
    ours = PackedModel(config)
    theirs = meta_model(config)
    shapes = [{name: p.shape for name, p in m.named_parameters()} for m in (ours, theirs)]
    assert shapes[0] == shapes[1]
    norms = [
        {name: m.variance_epsilon for name, m in model.named_modules() if name.endswith("norm")}
        for model in (ours, theirs)
    ]
    assert norms[0] == norms[1]
    assert ours.generation_config == theirs.generation_config
    assert (ours.get_output_embeddings() is ours.lm_head) and not ours.training


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope["rope_type"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_its_rotary_frequencies_are_those_of_transformers(
    architecture: str, rope: dict[str, Any]
) -> None:
    config = AutoConfig.for_model(architecture, **SIZES, rope_parameters=rope)
    ours = PackedModel(config).model.rotary_emb
    theirs = type(meta_model(config).model.rotary_emb)(config=config)
    assert torch.equal(ours.inv_freq, theirs.inv_freq)
    assert ours.attention_scaling == theirs.attention_scaling


def test_factors_of_a_file_slow_the_modules_down_as_well(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 48, dtype=np.float32)[: tiny_model("llama").config.head_dim // 2]
    path = tiny_file(tmp_path, "Q4_0", writing={"rope_factors": factors}).path
    model: Any = file_pair(path).target
    slowed = model.model.rotary_emb.inv_freq
    model.become_callable()
    assert torch.equal(model.model.rotary_emb.inv_freq, slowed)
    assert not torch.equal(slowed, PackedModel(model.config).model.rotary_emb.inv_freq)


def test_a_race_needs_no_module_that_can_be_called(pair: Pair, path: Path) -> None:
    written(pair)
    assert type(pair.target) is PackedModel
    script = (
        "import sys\n"
        "for name in [name for name in sys.modules if '.model' in name]: del sys.modules[name]\n"
        "sys.modules['transformers.modeling_utils'] = None\n"
        "from specviz import generate, load_pair\n"
        f"generate(load_pair({str(path)!r} + '+none'), {PROMPT}, max_new_tokens=4)\n"
    )
    ended = run_forked([sys.executable, "-c", script])
    assert ended.returncode == 0, ended.stderr


def in_eager_passes(pair: Pair) -> None:
    with eager_only():
        written(pair)


ASKED: dict[str, Callable[[Pair], Any]] = {
    "called": lambda pair: pair.target(input_ids=torch.tensor([PROMPT])),  # type: ignore[operator]
    "a part called": lambda pair: pair.target.model(torch.tensor([PROMPT])),  # type: ignore[attr-defined]
    "a part's attribute": lambda pair: pair.target.model.layers[1].self_attn.scaling,  # type: ignore[attr-defined]
    "copied": lambda pair: copy.deepcopy(pair.target),
    "generate": lambda pair: greedy_ids(pair.target, PROMPT, COUNT, pair.vocab),
    "attribute": lambda pair: pair.target.num_parameters(),  # type: ignore[attr-defined]
    "what is private": lambda pair: pair.target._supports_sdpa,  # type: ignore[attr-defined]
    "eager passes": in_eager_passes,
    "moved": lambda pair: pair.target.to("cpu"),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=list(ASKED))
def test_it_becomes_transformers_model_when_more_is_asked_of_it(
    pair: Pair, ask: Callable[[Pair], Any]
) -> None:
    model: Any = pair.target
    text = written(pair)
    addresses = {name: p.data_ptr() for name, p in model.named_parameters()}
    known = [model.generation_config, model.name_or_path, model.packed_as, model.weights_file]
    ask(pair)
    assert isinstance(model, PreTrainedModel) and type(model).__name__ == "Qwen2ForCausalLM"
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == addresses
    kept = [model.generation_config, model.name_or_path, model.packed_as, model.weights_file]
    assert kept == known
    assert not any(b.device.type == "meta" for b in model.buffers())
    assert written(pair) == text


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_lane_that_has_begun_goes_on_when_its_model_becomes_another(
    architecture: str, tmp_path: Path
) -> None:
    from specviz import speculate

    path = tiny_file(tmp_path, "Q8_0", architecture=architecture).path
    text = written(file_pair(path))
    pair = file_pair(path)
    rounds = speculate(pair, PROMPT, drafter="ngram", max_new_tokens=COUNT)
    begun = [next(rounds)]
    pair.target(input_ids=torch.tensor([PROMPT]))  # type: ignore[operator]
    tokens = [token.text for r in (*begun, *rounds) for token in r.emitted]
    assert "".join(tokens) == text


def test_what_is_hung_on_its_modules_is_called(pair: Pair) -> None:
    """No compiled pass runs with a hook; the modules run, and call it."""
    text = written(pair)
    model: Any = pair.target
    seen: list[str] = []
    model.register_forward_pre_hook(lambda *_: seen.append("model"))
    layer = model.model.layers[1]
    norm = model.model.norm
    layer.register_forward_hook(lambda *_, **__: seen.append("layer"), with_kwargs=True)
    norm.register_forward_hook(lambda *_: seen.append("norm"))
    assert written(pair) == text
    assert set(seen) == {"model", "layer", "norm"}
    assert seen.count("layer") == seen.count("norm")


def test_what_is_hung_on_a_part_is_called_once(pair: Pair) -> None:
    inner: Any = pair.target.model  # type: ignore[attr-defined]
    seen: list[Any] = []
    inner.register_forward_hook(lambda *_: seen.append(1))
    first = inner(torch.tensor([PROMPT])).last_hidden_state
    assert seen == [1]
    assert torch.equal(first, pair.target.model(torch.tensor([PROMPT])).last_hidden_state)  # type: ignore[attr-defined]
    assert seen == [1, 1]


def test_a_name_that_transformers_does_not_know_is_an_error(pair: Pair) -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        pair.target.no_such_thing  # type: ignore[attr-defined]  # noqa: B018
