"""GGUF files on a GPU: in bf16, without a folder of unpacked weights.

The device is a stand-in (`tests/helpers/stand_in_device.py`), whose tensors are in the host's
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sentences import Sentences
from stand_in_device import DEVICE, on_device, stand_in
from tiny_files import TinyFile, greedy_ids, tiny_file
from torch import nn

from specviz import Pair, Settings, load_pair, speculate
from specviz.base.errors import PairError
from specviz.core.engine_choice import make_engine
from specviz.core.model_facts import weights_form
from specviz.files import unpack
from specviz.files.gguf.header import GgufHeader
from specviz.files.memory import DeviceMemory
from specviz.pairs import models
from specviz.pairs.examine_models import examined_models
from specviz.pairs.models import reads_files

pytest.importorskip("numba", reason="numba is not installed, which unpacks blocks")
pytestmark = pytest.mark.usefixtures(stand_in.__name__)

GPU = DeviceMemory(DEVICE, 10**9)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend a machine with one GPU, where nothing may be unpacked to disk."""
    monkeypatch.setattr(models, "device_memory", lambda device=None: [GPU])
    monkeypatch.setattr(unpack, "_unpack", lambda *_: pytest.fail("unpacked to the disk"))
    monkeypatch.setattr(nn.Module, "to", lambda module, device: on_device(module))
    yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyFile, TinyFile]:
    """A target and a draft, tied and untied, in several kinds of blocks."""
    folder = tmp_path_factory.mktemp("files")
    target = tiny_file(folder, "Q4_K", "qwen2", name="target")
    draft = tiny_file(folder, "Q5_0", "qwen2", name="draft", seed=1, tie_word_embeddings=True)
    return target, draft


def loaded(files: tuple[TinyFile, TinyFile], **options: Any) -> Pair:
    target, draft = files
    return load_pair(f"{target.path}+{draft.path}", **options)


def host(tensor: Any) -> torch.Tensor:
    """The values of a tensor of the device, in fp32."""
    return tensor.to("cpu").float()


def test_weights_are_those_of_the_file_in_bf16(files: tuple[TinyFile, TinyFile]) -> None:
    pair = loaded(files)
    for model, file in zip((pair.target, pair.draft), files, strict=True):
        known = dict(file.model.named_parameters())
        parameters = dict(model.named_parameters())
        assert parameters.keys() == known.keys()
        for name, weight in parameters.items():
            assert weight.device == DEVICE and weight.dtype == torch.bfloat16, name
            assert torch.equal(host(weight), known[name].bfloat16().float()), name
        frequencies = model.model.rotary_emb.inv_freq
        assert frequencies.device == DEVICE and frequencies.dtype == torch.float32
        assert weights_form(model) == "bfloat16"


def test_a_file_may_be_written_to_that_was_copied(files: tuple[TinyFile, TinyFile]) -> None:
    pair = loaded(files)
    with files[0].path.open("r+b") as file:
        file.write(b"GGUF")
    assert make_engine(pair.target, pair.vocab).length == 0


def test_another_dtype_is_kept(files: tuple[TinyFile, TinyFile]) -> None:
    pair = loaded(files, dtype="float32")
    known = dict(files[0].model.named_parameters())
    for name, weight in pair.target.named_parameters():
        assert torch.equal(host(weight), known[name]), name


def test_the_pair_writes_what_its_target_would(files: tuple[TinyFile, TinyFile]) -> None:
    pair = loaded(files, dtype="float32")
    prompt = pair.encode("the cat sat on", chat="off")
    settings = Settings(max_new_tokens=16, ignore_eos=True)
    text = [token.id for round in speculate(pair, prompt, settings) for token in round.emitted]
    assert text == greedy_ids(files[0].model, prompt, 16, pair.vocab)


def test_the_doctor_counts_bf16_and_no_disk(
    files: tuple[TinyFile, TinyFile], sentences: Sentences
) -> None:
    names = [str(file.path) for file in files]
    examined = examined_models(names, None, DEVICE, {})
    assert [load.precision for load in examined.loads] == ["bfloat16", "bfloat16"]
    for finding in examined.findings:
        if finding.topic == "file":
            sentences(finding.sentence)
    several = examined_models(names, None, DEVICE, {"quantize": "4bit"})
    assert any("cache folder" in finding.sentence for finding in several.findings)


def test_files_that_bitsandbytes_is_to_quantise_are_unpacked() -> None:
    assert reads_files([None, None], on_cpu=False)
    assert not reads_files([None, "4bit"], on_cpu=False)
    assert reads_files([None, "4bit"], on_cpu=True)


def test_a_model_that_one_gpu_cannot_hold_is_unpacked(
    files: tuple[TinyFile, TinyFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[Path] = []

    def refuse(header: GgufHeader, *_: Any) -> None:
        unpacked.append(header.path)
        raise PairError("no disk")

    monkeypatch.setattr(unpack, "_unpack", refuse)
    monkeypatch.setattr(models, "device_memory", lambda device=None: [GPU, GPU])
    assert loaded(files).target.device == DEVICE
    assert unpacked == []
    small = [DeviceMemory(DEVICE, 7_000_000)] * 2  # the pair takes 10.5 MB
    monkeypatch.setattr(models, "device_memory", lambda device=None: small)
    with pytest.raises(PairError, match="no disk"):
        loaded(files)
    assert unpacked == [files[0].path]
