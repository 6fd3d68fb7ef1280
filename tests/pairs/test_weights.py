"""Loading of weights: devices, options, errors and progress."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from model_families import saved
from safetensors.torch import load_file, save_file
from sentences import Sentences
from toy_models import emitted_ids, llama, words

from specviz import Settings, baseline, load_pair, speculate
from specviz.base.errors import PairError
from specviz.files.hub import find_source
from specviz.files.memory import (
    DeviceMemory,
    LayerCache,
    MemoryNeed,
    PlannedLoad,
    device_memory,
    place_target,
)
from specviz.files.metadata import read_metadata
from specviz.files.progress import Progress, terminal_watcher
from specviz.files.weights import LoadOptions, load_model

CPU = torch.device("cpu")


def gpu(index: int, free: int) -> DeviceMemory:
    return DeviceMemory(torch.device("cuda", index), free)


def load(name: str, count: int) -> PlannedLoad:
    """The planned load of a model that needs `count` bytes, in bfloat16 and without caches."""
    return PlannedLoad(name, MemoryNeed(count // 2, count // 2), "bfloat16")


@pytest.fixture
def names(tmp_path: Path) -> str:
    folders = [saved(tmp_path / n, llama(8, seed=i), words(8)) for i, n in enumerate("td")]
    return "+".join(map(str, folders))


# Devices


def test_both_models_go_to_the_gpu_with_most_free_memory():
    place = place_target([load("t", 100), load("d", 10)], [gpu(0, 90), gpu(1, 120), gpu(2, 110)])
    assert place == (torch.device("cuda", 1), {})


def test_a_large_target_is_spread_and_leaves_memory_for_the_draft_on_the_last_gpu():
    place = place_target([load("t", 100), load("d", 10)], [gpu(0, 60), gpu(1, 60)])
    assert place == (None, {0: 60, 1: 50})
    assert place_target([load("t", 100)], [gpu(0, 60), gpu(1, 60)]) == (None, {0: 60, 1: 60})


@pytest.mark.parametrize(
    "devices", [[gpu(0, 100)], [gpu(0, 50), gpu(1, 50)], [DeviceMemory(CPU, 100)]]
)
def test_a_pair_too_large_for_all_devices_is_rejected_with_numbers(
    devices: list[DeviceMemory], sentences: Sentences
):
    with sentences.raises(PairError):
        place_target([load("t", 100), load("d", 10)], devices)


def test_the_error_names_weights_of_fewer_bits_that_would_fit(sentences: Sentences):
    with sentences.raises(PairError):
        place_target([load("t", 100)], [gpu(0, 60)])
    with sentences.raises(PairError):
        place_target([load("t", 100)], [gpu(0, 30)])
    with sentences.raises(PairError):
        place_target([load("t", 100)], [gpu(0, 20)])


def test_memory_counts_caches_up_to_their_window():
    need = MemoryNeed(0, 0, (LayerCache(3), LayerCache(5, 10)), copies=2, context=50)
    assert need.bytes("bfloat16", 8) == 2 * 2 * 8 * (3 + 5)
    assert need.bytes("float32", 40) == 2 * 4 * (40 * 3 + 10 * 5)
    assert need.bytes("float32", 99) == need.bytes("float32", 50)


def test_this_machine_has_free_memory():
    assert all(memory.free > 10**8 for memory in device_memory())
    assert [memory.device for memory in device_memory(CPU)] == [CPU]


# Options


def test_a_cpu_runs_fp32_and_a_gpu_the_dtype_of_the_checkpoint():
    one = torch.device("cuda", 1)
    assert LoadOptions(device=CPU).arguments() == {"dtype": torch.float32}
    assert LoadOptions(torch.bfloat16, device=CPU).arguments() == {"dtype": torch.bfloat16}
    assert LoadOptions(device=one).arguments() == {"dtype": "auto", "device_map": {"": one}}
    spread = LoadOptions(max_memory={0: 5, 1: 4}).arguments()
    assert spread == {"dtype": "auto", "device_map": "auto", "max_memory": {0: 5, 1: 4}}


def test_quantized_weights_use_bitsandbytes():
    one = torch.device("cuda", 0)
    eight = LoadOptions(quantize="8bit", device=one).arguments()
    four = LoadOptions(torch.float16, "4bit", one).arguments()["quantization_config"]
    assert eight["quantization_config"].load_in_8bit and eight["device_map"] == {"": one}
    assert four.load_in_4bit and four.bnb_4bit_compute_dtype == torch.float16
    assert four.bnb_4bit_quant_type == "nf4"


@pytest.mark.parametrize("which", ["quantize", "draft_quantize"])
def test_quantized_weights_need_a_package(
    names: str, which: str, monkeypatch: Any, sentences: Sentences
):
    with sentences.raises(PairError):
        load_pair(names, **{which: "3bit"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("specviz.pairs.quantize.has_numba", lambda: False)
    with sentences.raises(PairError):
        load_pair(names, **{which: "8bit"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with sentences.raises(PairError):
        load_pair(names, **{which: "4bit"})


def test_each_model_has_its_own_options(names: str, monkeypatch: Any):
    """The machine has two GPUs; the test checks only the calls of `from_pretrained`."""
    from transformers import AutoModelForCausalLM

    asked: list[dict[str, Any]] = []

    def from_pretrained(name: str, **options: Any) -> Any:
        asked.append(options)
        return llama(8), {"missing_keys": set()}

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(
        "specviz.pairs.models.device_memory", lambda place: [gpu(0, 450_000), gpu(1, 450_000)]
    )
    monkeypatch.setattr("specviz.files.weights.checked_quantization", lambda bits, **_: bits)
    place = torch.device("cuda", 1)
    monkeypatch.setattr("specviz.pairs.models.logits_device", lambda _: place)
    load_pair(names, dtype="float32", draft_quantize="8bit")
    target, draft = asked
    assert target["device_map"] == "auto" and "quantization_config" not in target
    # Memory stays free for the draft on the last GPU, and for caches on both.
    assert target["max_memory"][1] < target["max_memory"][0] < 450_000
    # The draft goes to the device of the target's logits.
    assert draft["device_map"] == {"": place} and draft["quantization_config"].load_in_8bit
    for options in asked:
        assert options["use_safetensors"] and options["trust_remote_code"] is False


def test_a_dtype_may_be_asked_for(names: str, sentences: Sentences):
    pair = load_pair(names, dtype="bfloat16", device="cpu")
    assert pair.target.dtype == pair.draft.dtype == torch.bfloat16
    assert load_pair(names, dtype=torch.float32).target.dtype == torch.float32
    with sentences.raises(PairError):
        load_pair(names, dtype="int7")


# Pairs with one model


def test_a_target_may_stand_alone(names: str):
    target = names.partition("+")[0]
    pair = load_pair(f"{target}+none")
    assert pair.draft is None
    written = emitted_ids(baseline(pair, "w1", Settings(max_new_tokens=5)))
    assert written == emitted_ids(speculate(load_pair(names), "w1", Settings(max_new_tokens=5)))


def test_a_folder_may_have_a_plus_in_its_name(tmp_path: Path):
    folder = saved(tmp_path / "a+b", llama(8), words(8))
    assert load_pair(f"{folder}+none").draft is None
    assert load_pair(f"{folder}+{folder}").draft is not None


# Too little memory


def test_a_pair_that_does_not_fit_is_rejected_before_it_is_read(
    names: str, monkeypatch: Any, sentences: Sentences
):
    monkeypatch.setattr(
        "specviz.pairs.models.device_memory", lambda place: [DeviceMemory(CPU, 1000)]
    )
    monkeypatch.setattr("specviz.pairs.quantize.load_model", lambda *_: pytest.fail("it was read"))
    with sentences.raises(PairError):
        load_pair(names)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_too_little_memory_while_loading_gives_one_sentence_with_numbers(
    names: str, error: Exception, monkeypatch: Any, sentences: Sentences
):
    from transformers import AutoModelForCausalLM

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    monkeypatch.setattr("specviz.pairs.models.device_memory", lambda _: [DeviceMemory(CPU, 10**9)])
    with sentences.raises(PairError):
        load_pair(names)
    monkeypatch.undo()
    assert load_pair(names).draft is not None


# Models that cannot be loaded


def test_models_that_do_not_match_are_rejected_before_any_weights_are_read(
    tmp_path: Path, monkeypatch: Any, sentences: Sentences
):
    monkeypatch.setattr("specviz.pairs.quantize.load_model", lambda *_: pytest.fail("it was read"))
    one, two = (saved(tmp_path / str(n), llama(40), words(n)) for n in (40, 1))
    with sentences.raises(PairError):
        load_pair(f"{one}+{two}")


def test_a_model_with_missing_weights_is_not_completed_at_random(
    tmp_path: Path, sentences: Sentences
):
    """transformers would fill the missing weights with random numbers."""
    folder = saved(tmp_path / "t", llama(8), words(8))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with sentences.raises(PairError):
        load_model(find_source(str(folder)), LoadOptions(device=CPU))


# Progress


def test_progress_is_reported_for_each_model_up_to_its_end(names: str):
    told: list[Progress] = []
    load_pair(names, on_progress=told.append)
    sentences = list(dict.fromkeys(p.sentence for p in told))
    assert sentences == [f"reading the files of {names}", "loading t", "loading d"]
    for name in sentences[1:]:
        parts = [p.fraction for p in told if p.sentence == name]
        assert parts == sorted(parts) and parts[-1] == 1.0 and len(set(parts)) > 3


def test_the_progress_bars_of_transformers_are_restored(names: str, capsys: Any):
    from transformers.utils import logging

    load_pair(names, on_progress=lambda progress: None)
    assert logging.set_tqdm_hook(None) is None
    assert "Loading weights" not in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    steps = [Progress("loading t", part / 4) for part in range(5)] + [Progress("loading d", 0.5)]
    lines = io.StringIO()
    screen = Terminal()
    for out in (lines, screen):
        show = terminal_watcher(out)
        for step in steps:
            show(step)
    assert lines.getvalue() == "loading t\nloading d\n"
    assert "██████████░░░░░░░░░░  50 % loading t" in screen.getvalue()
    assert screen.getvalue().count("\n") == 0


def test_weights_keep_the_dtype_that_they_are_stored_in(tmp_path: Path):
    """This includes models whose passes can be compiled: fp32 is not rounded to bf16."""
    for dtype in (torch.float32, torch.bfloat16):
        folder = tmp_path / str(dtype)
        llama(9).to(dtype).save_pretrained(folder)
        words(9).save_pretrained(folder)
        assert read_metadata(str(folder)).config.dtype == dtype
