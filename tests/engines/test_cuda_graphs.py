"""Programs without a GPU: their buffers, and the order in which a capture is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

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


class Graphs:
    """What `torch.cuda` is asked for while a program is captured, with no GPU behind it.

    Only the order of calls is tested with it; what they do, tests/engines/test_cuda.py tests on a
    GPU.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, broken: bool = False) -> None:
        self.calls: list[Any] = []
        self.broken = broken
        fakes = {
            "Stream": lambda device: "stream",
            "stream": lambda stream: nullcontext(),
            "graph_pool_handle": lambda: "pool",
            "CUDAGraph": lambda: self,
            "graph": self.capture,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        module._capture_resources.cache_clear()

    @contextmanager
    def capture(self, graph: Any, *place: Any, **options: Any) -> Iterator[None]:
        assert graph is self
        self.calls.append((*place, options))
        yield
        self.calls.append("end")
        if self.broken:
            raise RuntimeError("operation not permitted when stream is capturing")


@pytest.fixture(autouse=True)
def no_stream_of_a_fake() -> Iterator[None]:
    yield
    module._capture_resources.cache_clear()


def test_a_capture_follows_three_runs_on_its_stream(monkeypatch: pytest.MonkeyPatch):
    graphs = Graphs(monkeypatch)
    found = module._captured(lambda: graphs.calls.append("run"), torch.device("cuda"))
    options = {"capture_error_mode": "thread_local"}
    assert found is graphs
    assert graphs.calls == ["run", "run", "run", ("pool", "stream", options), "run", "end"]


def test_a_capture_that_fails_leaves_a_program_that_runs(monkeypatch: pytest.MonkeyPatch):
    program = Program(doubled, [torch.ones(2)])
    graphs = Graphs(monkeypatch, broken=True)
    with pytest.warns(UserWarning, match="could not be captured"):
        found = module._captured(program._run, torch.device("cuda"))
    assert found is None and graphs.calls[-1] == "end"
    assert not program.graphed
    assert program(torch.ones(2))[0].tolist() == [2.0, 2.0]
