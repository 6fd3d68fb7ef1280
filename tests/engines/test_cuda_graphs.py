"""Programs without a GPU: their buffers, and the order of calls in a capture."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentences import Sentences
from torch import Tensor

from specviz.core import engine_choice
from specviz.core.clock import now
from specviz.core.engine_choice import make_engine
from specviz.core.records import EngineKind
from specviz.sides.fast_gpu import cache as module
from specviz.sides.fast_gpu.cache import Program

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def doubled(x: Tensor) -> tuple[Tensor, ...]:
    return x * 2, x + 1


def test_a_program_reads_and_writes_in_place():
    program = Program(doubled, [torch.zeros(3, dtype=torch.long)])
    twice, more = program(torch.zeros(3, dtype=torch.long))
    for values in ([1, 2, 3], [4, 5, 6]):
        assert program(torch.tensor(values))[0] is twice
        assert twice.tolist() == [2 * v for v in values]
        assert more.tolist() == [v + 1 for v in values]
    assert not program.graphed and program.seconds > 0


class Stream:
    """A stream that records each wait for another stream."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name = name
        self._calls = calls

    def wait_stream(self, other: Stream) -> None:
        self._calls.append(f"{self.name} waits for {other.name}")


class Graphs:
    """A fake `torch.cuda` that records the calls of a capture.

    broken: whether every capture fails.

    It tests only the order of calls; tests/engines/test_cuda.py tests their effects on a GPU.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, broken: bool = False) -> None:
        self.calls: list[Any] = []
        self.broken = broken
        self.capturing = False
        fakes = {
            "Stream": lambda device: Stream("side", self.calls),
            "current_stream": lambda device: Stream("current", self.calls),
            "stream": lambda stream: nullcontext(),
            "graph_pool_handle": lambda: "pool",
            "CUDAGraph": lambda: self,
            "graph": self.capture,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        module._capture_resources.cache_clear()

    @contextmanager
    def capture(self, graph: Any, pool: str, stream: Stream, **options: Any) -> Iterator[None]:
        assert graph is self
        self.calls.append((pool, stream.name, options))
        self.capturing = True
        try:
            yield
        finally:
            self.capturing = False
            self.calls.append("end")
            if self.broken:
                raise RuntimeError("operation failed due to a previous error during capture")

    def run(self) -> None:
        """Run as the function to capture."""
        assert not gc.isenabled(), "what a search for garbage frees would end the capture"
        self.calls.append("run")
        if self.capturing and self.broken:
            raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture(autouse=True)
def no_stream_of_a_fake() -> Iterator[None]:
    yield
    module._capture_resources.cache_clear()


def test_a_capture_follows_three_runs_on_its_stream(monkeypatch: pytest.MonkeyPatch):
    graphs = Graphs(monkeypatch)
    found = module._captured(graphs.run, torch.device("cuda"))
    options = {"capture_error_mode": "thread_local"}
    assert found is graphs
    assert graphs.calls == [
        "side waits for current",
        "run",
        "run",
        "run",
        ("pool", "side", options),
        "run",
        "end",
    ]


def test_a_capture_that_fails_is_told_and_leaves_the_next_one_other_memory(
    monkeypatch: pytest.MonkeyPatch,
    sentences: Sentences,
):
    graphs = Graphs(monkeypatch, broken=True)
    monkeypatch.setattr(module, "_failed", [])
    with sentences.warns(UserWarning):
        found = module._captured(graphs.run, torch.device("cuda"))
    assert found is None and module._failed == [graphs]
    assert graphs.calls[-2:] == ["end", "current waits for side"]
    assert module._capture_resources.cache_info().currsize == 0, "the next one has its own memory"


def test_the_clock_waits_for_its_own_stream_while_others_capture(monkeypatch: pytest.MonkeyPatch):
    waits: list[torch.device] = []

    def current_stream(device: torch.device) -> Any:
        return SimpleNamespace(synchronize=lambda: waits.append(device))

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.delattr(torch.cuda, "synchronize")
    device = torch.device("cuda", 1)
    assert now(device) <= now(device)
    assert waits == [device, device]


def test_attention_that_prepares_each_length_is_off_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    kind = EngineKind(name="any", label="any model", make=lambda model, vocab: model)
    monkeypatch.setattr(engine_choice, "engines", lambda: [kind])
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        for device in ("cpu", "cuda"):
            torch.backends.cuda.enable_cudnn_sdp(True)
            make_engine(SimpleNamespace(device=torch.device(device)), 4)
            assert torch.backends.cuda.cudnn_sdp_enabled() == (device == "cpu")
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)
