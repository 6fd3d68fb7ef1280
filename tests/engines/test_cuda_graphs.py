"""Programs, and what a CUDA graph refuses, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.sides.fast_gpu import cuda_graphs as module
from specviz.sides.fast_gpu.cuda_graphs import (
    CompiledLayers,
    HostRead,
    NoHostReads,
    Program,
    capture,
    write,
)

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

READS: dict[str, Callable[[], Any]] = {
    "item": lambda: X[0, 0].item(),
    "if": lambda: 1 if (X > 0).all() else 0,
    "int": lambda: int(X.argmax()),
    "slice": lambda: X[: X.argmax()],
    "mask": lambda: X[X > 0],
    "mask set": lambda: X.clone().__setitem__(X > 0, 1.0),
    "nonzero": lambda: X.nonzero(),
    "where": lambda: torch.where(X > 0),
    "unique": lambda: X.unique(),
    "equal": lambda: torch.equal(X, X),
    "allclose": lambda: torch.allclose(X, X),
    "multinomial": lambda: torch.multinomial(X.abs(), 1),
    "select": lambda: X.masked_select(X > 0),
    "repeat": lambda: X.repeat_interleave(torch.tensor([1, 2, 1, 1]), dim=0),
}
FINE: dict[str, Callable[[], Any]] = {
    "where": lambda: torch.where(X > 0, X, 0.0),
    "topk": lambda: X.topk(2).values.double().cumsum(-1),
    "search": lambda: torch.searchsorted(X.sort().values, X),
    "scatter": lambda: torch.zeros_like(X).scatter_(-1, X.argmax(-1, keepdim=True), 1.0),
    "index": lambda: X[torch.tensor([2, 1])],
    "repeat": lambda: X.repeat_interleave(2, dim=0),
    "fill": lambda: X.masked_fill(X > 0, 0.0),
    "split": lambda: X.split(2),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", READS)
def test_host_reads_are_noticed(name: str, inference: bool):
    with torch.inference_mode(inference), NoHostReads(), pytest.raises(HostRead):
        READS[name]()


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", FINE)
def test_other_work_is_left_alone(name: str, inference: bool):
    with torch.inference_mode(inference):
        with NoHostReads():
            found = FINE[name]()
        torch.testing.assert_close(found, FINE[name]())


def doubled(x: Tensor) -> tuple[Tensor, ...]:
    return x * 2, x + 1


def test_a_program_reads_and_writes_in_place():
    x = torch.zeros(3, dtype=torch.long)
    program = capture(doubled, [x])
    twice, more = program.outputs
    for values in ([1, 2, 3], [4, 5, 6]):
        write(x, values)
        assert program.forward() == (twice, more) or program.outputs[0] is twice
        assert twice.tolist() == [2 * v for v in values]
        assert more.tolist() == [v + 1 for v in values]
    assert not program.graphed and program.seconds > 0


class Graphs:
    """What `torch.cuda` is asked for while a program is captured, with no GPU behind it.

    Only the order of calls is tested with it; what they do, tests/test_cuda.py tests on a GPU.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, broken: bool = False) -> None:
        self.calls: list[Any] = []
        self.broken = broken
        note = self.calls.append
        stream = SimpleNamespace(wait_stream=lambda other: note("wait"))
        fakes = {
            "Stream": lambda device: stream,
            "stream": lambda stream: nullcontext(),
            "current_stream": lambda device: stream,
            "graph_pool_handle": lambda: "pool",
            "synchronize": lambda device: note("synchronize"),
            "CUDAGraph": lambda: self,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(module, "_streams", {})
        monkeypatch.setattr(module, "_pools", {})

    def capture_begin(self, **options: Any) -> None:
        self.calls.append(options)

    def capture_end(self) -> None:
        self.calls.append("end")
        if self.broken:
            raise RuntimeError("operation not permitted when stream is capturing")

    def replay(self) -> None:
        self.calls.append("replay")


def graphed(monkeypatch: pytest.MonkeyPatch, *, broken: bool) -> tuple[Program, Graphs]:
    graphs = Graphs(monkeypatch, broken=broken)

    def noted(x: Tensor) -> tuple[Tensor, ...]:
        graphs.calls.append("run")
        return doubled(x)

    program = Program(noted, [torch.ones(2)])
    module._graph_into(program, torch.device("cpu"))
    return program, graphs


def test_a_capture_follows_three_runs_on_a_side_stream(monkeypatch: pytest.MonkeyPatch):
    program, graphs = graphed(monkeypatch, broken=False)
    options = {"pool": "pool", "capture_error_mode": "thread_local"}
    before = ["wait", "run", "run", "run", "synchronize"]
    assert graphs.calls == [*before, options, "run", "end", "wait"]
    program.forward()
    assert program.graphed and graphs.calls[-1] == "replay"


def test_a_capture_that_fails_leaves_a_program_that_runs(monkeypatch: pytest.MonkeyPatch):
    with pytest.warns(UserWarning, match="could not be captured"):
        program, _ = graphed(monkeypatch, broken=True)
    assert not program.graphed
    assert program.forward()[0].tolist() == [2.0, 2.0]


class Layer(torch.nn.Module):
    """Not one of torch's own, which its compiler takes as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + 1


def test_compiled_layers_are_compiled_in_there_only(monkeypatch: pytest.MonkeyPatch):
    """The compiler's tracing is real; its code generator, slow to start, is left out."""
    traced: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        traced.append(graph)
        return graph.forward

    compile_layer = torch.compile
    monkeypatch.setattr(torch, "compile", lambda call: compile_layer(call, backend=backend))
    layer = Layer()
    layers = CompiledLayers([layer])
    assert torch.equal(layer(X), X * 2 + 1) and not traced
    with layers.active():
        assert torch.equal(layer(X), X * 2 + 1)
    assert len(traced) == 1
    layer(X[:2])
    assert len(traced) == 1
