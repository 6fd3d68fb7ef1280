"""Python as on ZeroGPU, with the real package `spaces`: the page, or tasks read from stdin.

There is no GPU: in the main process `spaces` stands in for one anyway, and in the forked ones
the weights come back to the processor. All else, the forks, pipes and calls, is real.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import runpy
import sys
import time
from types import SimpleNamespace
from typing import Any, TextIO

import torch
from places import ROOT

PR_SET_PDEATHSIG = 1
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]


def stand_in_for_cuda() -> Any:
    """Import `spaces`, on a torch that was built without CUDA."""
    torch.version.cuda = "12.8"  # type: ignore[assignment]
    torch._C._cuda_init = torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    torch.cuda._is_in_bad_fork = bool  # type: ignore[assignment]
    # On a Space the container takes the forked processes along; here they must end with the page.
    os.register_at_fork(after_in_child=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9))

    import spaces
    from spaces.zero import torch as emulated

    unpatch = emulated.unpatch
    tensor = torch.tensor

    def unpatch_and_stand_in() -> None:
        unpatch()  # from here on the forked process talks to its GPU
        torch.Tensor.cuda = lambda self, **_: self.clone()  # type: ignore
        torch.Tensor.pin_memory = on_whole_pages  # type: ignore
        torch.tensor = lambda *args, device=None, **more: tensor(*args, **more)  # type: ignore
        torch.cuda.current_stream = lambda _: SimpleNamespace(synchronize=bool)  # type: ignore

    emulated.unpatch = unpatch_and_stand_in
    return spaces


def on_whole_pages(room: torch.Tensor) -> torch.Tensor:
    """Bytes that begin with a page, as pinned memory does: direct reads need that."""
    buffer = torch.empty(room.numel() + 4096, dtype=room.dtype)
    start = -buffer.data_ptr() % 4096
    return buffer[start : start + room.numel()]


def serve_tasks(reports: TextIO) -> None:
    """Load the pair, launch a page as `spaces` wants it, and do one task per line of stdin."""
    from specviz.worker.zerogpu import load_pairs

    started = time.monotonic()
    worker = load_pairs()
    worker._models.race = misled(worker._models.race)

    import gradio as gr

    with gr.Blocks() as page:
        gr.Markdown("a page")
    page.launch(prevent_thread_lock=True, quiet=True)
    told: dict[str, Any] = {"seconds": time.monotonic() - started}
    print(json.dumps(told), file=reports, flush=True)
    for line in sys.stdin:
        print(json.dumps(done(worker, json.loads(line))), file=reports, flush=True)


def misled(race: Any) -> Any:
    """Run a race; for some prompts, one that ends as races may end on a GPU."""

    def started(pair: Any, prompt: str, settings: Any) -> Any:
        if prompt == "tell the process":
            yield str(os.getpid())
            return
        events = race(pair, prompt, settings)
        for count, event in enumerate(events):
            yield event
            if prompt == "lose the GPU" and count == 3:
                os._exit(1)
            if prompt == "break the GPU" and count == 3:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            if prompt == "take long":
                time.sleep(0.35)

    return started


def done(worker: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a task and return its result; stop it after `most` results or `beats` yields."""
    from specviz import Settings, SpecvizError
    from specviz.worker.tasks import ExamineTask, LoadTask, MachineTask, RaceTask, SampleTask, Stop

    kinds = {
        "race": lambda: RaceTask(
            asked.get("pair", "builtin"), asked["prompt"], Settings(**asked["settings"])
        ),
        "sample": lambda: SampleTask(
            "builtin", asked["prompt"], Settings(**asked["settings"]), 3, length=2, reach=16
        ),
        "load": lambda: LoadTask(asked.get("pair", "builtin")),
        "machine": MachineTask,
        "examine": lambda: ExamineTask("builtin"),
    }
    came: list[Any] = []
    beats: list[float] = []
    stop = Stop()
    told: dict[str, Any] = {"error": None}
    try:
        for item in worker.run(kinds[asked["kind"]](), stop):
            beats.append(time.monotonic())
            came += [] if item is None else [item]
            if len(came) == asked.get("most") or len(beats) > asked.get("beats", 10**9):
                stop.set()
    except SpecvizError as error:
        told = {"error": str(error), "kind": type(error).__name__}
    told["beats"] = [after - before for before, after in itertools.pairwise(beats)]
    told["came"] = [type(item).__name__ for item in came]
    rounds = [one for one in came if type(one).__name__ == "Round" and one.lane == "speculative"]
    headers = [one for one in came if type(one).__name__ == "Header"]
    told["ids"] = [token.id for one in rounds for token in one.emitted]
    told["header"] = [[one.target["form"], one.dtype] for one in headers]
    told["said"] = repr(came[-1:])
    return told


if __name__ == "__main__":
    if sys.argv[1:] == ["page"]:
        stand_in_for_cuda()
        sys.argv[1:] = []
        runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
    else:
        # What libraries print is not among the reports.
        reports = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        stand_in_for_cuda()
        serve_tasks(reports)
