"""A visit of ten minutes to a machine with a GPU: exactness and speed.

It needs torch and transformers and none of this project's other requirements; models of
well-known sizes get random weights there, and verdicts are scripted. Each step runs in a process of
its own, which is stopped at its limit. A file of results is written after every figure, so that a
visit may end at any time, and `--resume` continues after the steps that were finished. At the end,
one table. Exit status 1: there is no GPU, or a step failed.

`--pack FILE` writes everything that a visit needs as an archive of some megabytes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from specviz.inspect.shapes import SHAPES, Shape

from . import gpu_steps
from .gpu_steps import Report, Visit

ROOT = Path(__file__).resolve().parent.parent
WHOLE = 9.5 * 60  # seconds for all steps
SHORTEST = 10.0  # seconds: a step does not begin with less
TAIL = 6000  # characters of a log that the file keeps
DONE = "done"

# The acceptance of each pair: for Qwen 1.5B as in its recording of a page of code, for Llama as in
# earlier measurements. For Qwen 7B with this draft it is unknown.
ACCEPTANCES = {
    "qwen2.5-1.5b+0.5b": 0.89,
    "llama-3.1-8b+3.2-1b": 0.7,
    "qwen2.5-7b+0.5b": 0.7,
}
PACKED = ("specviz", "scripts", "tests", "assets", "pyproject.toml", "Makefile", "README.md")
LEFT_OUT = {".safetensors", ".gz", ".png", ".mp4", ".woff2", ".pyc"}


@dataclass(frozen=True)
class Step:
    """run: measures, and sends each figure. limit: seconds."""

    name: str
    run: Callable[[Report], None]
    limit: float


@dataclass
class Outcome:
    """The outcome of a step. figures: those that it sent. output: the end of its log."""

    name: str
    state: str = "not run: no time was left"
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    output: str = ""


def plan(visit: Visit, shapes: dict[str, Shape]) -> Iterator[Step]:
    """The steps, the most important first."""

    def step(name: str, limit: float, function: Callable[..., None], *more: Any) -> Step:
        def run(report: Report) -> None:
            function(report, visit, *more)

        return Step(name, run, limit)

    first, *others = shapes
    yield step("machine", 40, gpu_steps.machine)
    yield step("bits", 70, gpu_steps.bits, shapes[first])
    yield step(first, 110, gpu_steps.pair_speeds, shapes[first], ACCEPTANCES.get(first, 0.7))
    yield step("CUDA tests", 120, gpu_steps.cuda_tests)
    for name in others:
        yield step(name, 120, gpu_steps.pair_speeds, shapes[name], ACCEPTANCES.get(name, 0.7))
    yield step("prove", 60, gpu_steps.proof)
    yield step("launches", 20, gpu_steps.launches)
    if find_spec("vllm") is not None:
        yield step(f"vLLM, {first}", 150, gpu_steps.vllm_speed, shapes[first])


def run_all(
    steps: Iterable[Step], file: Path, whole: float = WHOLE, known: Sequence[Outcome] = ()
) -> list[Outcome]:
    """Run the steps within `whole` seconds in all, except those that are done in `known`; `file`
    is written again after every figure."""
    file.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + whole
    finished = {outcome.name: outcome for outcome in known if outcome.state == DONE}
    outcomes: list[Outcome] = []

    def write() -> None:
        text = json.dumps([asdict(outcome) for outcome in outcomes], indent=1)
        beside = file.with_suffix(".part")
        beside.write_text(text + "\n", "utf-8")
        beside.replace(file)

    for step in steps:
        outcome = finished.get(step.name, Outcome(step.name))
        outcomes.append(outcome)
        limit = min(step.limit, end - time.monotonic())
        if outcome.state != DONE and limit >= min(SHORTEST, step.limit):
            print(f"{step.name}: at most {limit:.0f} s", flush=True)
            run_step(step, limit, outcome, file.parent, write)
        write()
    return outcomes


def run_step(
    step: Step, limit: float, outcome: Outcome, folder: Path, write: Callable[[], None]
) -> None:
    """Run a step in a process of its own for at most `limit` seconds; all that it started ends with
    it, and the figures that it sent are kept."""
    log_name = re.sub(r"\W|_", "-", step.name)
    log = folder / f"{log_name}.log"
    # A fork has all that was imported. It can use a GPU because none was requested before.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run_alone, args=(step, theirs, log))
    began = time.monotonic()
    process.start()
    theirs.close()
    outcome.state = f"stopped at its limit of {limit:.0f} s"
    with suppress(EOFError):
        while (left := began + limit - time.monotonic()) > 0:
            if ours.poll(left):
                name, value = ours.recv()
                outcome.figures[name] = value
                write()
        left = -1.0
    if left > 0:  # it has closed its end
        process.join(left)
        outcome.state = f"failed with exit status {process.exitcode}"
        if process.exitcode == 0:
            outcome.state = DONE
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    outcome.seconds = round(time.monotonic() - began, 1)
    with suppress(OSError):
        outcome.output = log.read_text("utf-8", errors="replace")[-TAIL:]


def _run_alone(step: Step, connection: Connection, log: Path) -> None:
    """In the process of a step."""
    os.setsid()
    output = log.open("w", encoding="utf-8", buffering=1)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    sys.stdout = sys.stderr = output
    code = 1
    try:
        step.run(lambda name, value: connection.send((name, value)))
        code = 0
    except SystemExit as error:
        print(error)
    except BaseException:
        traceback.print_exc()
    output.flush()
    connection.close()
    os._exit(code)


HEADINGS = (
    "pair",
    "kernels",
    "floor",
    "alone",
    "with drafts (γ)",
    "generate()",
    "assisted",
    "vLLM",
    "a pass, share of its floor",
    "a draft step, share of its floor",
    "kernels of both",
    "between rounds",
)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The speeds as Markdown, in tokens/s; floors are of a pass of the target."""
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|---" * len(HEADINGS) + "|"
    vllm = {}
    for outcome in outcomes:
        if outcome.name.startswith("vLLM, "):
            pair = outcome.name.removeprefix("vLLM, ")
            vllm[pair] = outcome.figures.get("tokens_per_second")
    for outcome in outcomes:
        for kernels in ("torch", "triton"):
            figures = _figures_of(outcome, kernels)
            if "pass_seconds" in figures:
                cells = _cells(outcome.figures | figures, vllm.get(outcome.name))
                yield f"| {outcome.name} | {kernels} | " + " | ".join(cells) + " |"


def _figures_of(outcome: Outcome, kernels: str) -> dict[str, Any]:
    """The figures of one form of a step's kernels."""
    prefix = f"{kernels}: "
    figures = {}
    for name, value in outcome.figures.items():
        if name.startswith(prefix):
            figures[name.removeprefix(prefix)] = value
    return figures


def _cells(figures: dict[str, Any], vllm: float | None) -> list[str]:
    """The cells after the pair and its kernels; empty where a step was interrupted before."""
    target_floor = figures["target_floor_seconds"]
    draft_floor = figures["draft_floor_seconds"]
    # Figures that were read from a file have texts as keys.
    pass_seconds = {int(width): seconds for width, seconds in figures["pass_seconds"].items()}
    target_pass = pass_seconds[1]
    step = figures.get("step_seconds")
    step_cell = ""
    if step is not None:
        step_cell = f"{step * 1e3:.2f} ms, {draft_floor / step:.0%}"
    rates = figures.get("tokens_per_second", {})
    counts = figures.get("kernels", {})
    ahead = figures.get("the next one enqueued", {})
    gamma = figures.get("gamma", "?")
    return [
        f"{1 / target_floor:.0f}",
        _rate(rates.get("target alone")),
        f"{_rate(rates.get('with drafts'))} ({gamma})",
        _rate(rates.get("generate()")),
        _rate(rates.get("generate(assistant)")),
        _rate(vllm),
        f"{target_pass * 1e3:.2f} ms, {target_floor / target_pass:.0%}",
        step_cell,
        ", ".join(map(str, counts.values())),
        _milliseconds(ahead.get("milliseconds_between_rounds")),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1f}"


def _milliseconds(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.2f} ms"


def pack(file: Path) -> None:
    """Write what a visit needs: code, tests, tables; no weights, recordings or pictures."""
    with tarfile.open(file, "w:gz") as archive:
        for name in PACKED:
            archive.add(ROOT / name, name, filter=_packed)


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(member.name)
    if path.suffix in LEFT_OUT or "__pycache__" in path.parts:
        return None
    return member


def read_outcomes(file: Path) -> list[Outcome]:
    """The outcomes of an earlier visit; none if there was none."""
    try:
        return [Outcome(**fields) for fields in json.loads(file.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the visit; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--shapes", nargs="+", choices=SHAPES, default=list(ACCEPTANCES), help="sizes of the pairs")
    add(
        "--seconds", type=float, default=WHOLE, help="time limit for all steps, default %(default)s"
    )
    add("--resume", action="store_true", help="skip the steps that an earlier visit finished")
    add("--output", type=Path, default=ROOT / "build" / "gpu", help="folder for the results")
    add("--pack", type=Path, metavar="FILE", help="only pack what a visit needs into this .tar.gz")
    options = parser.parse_args(arguments)
    if options.pack:
        pack(options.pack)
        print(f"{options.pack}: unpack it there, and run python3 -m scripts.measure_gpu")
        return 0
    file = options.output / "results.json"
    known = read_outcomes(file) if options.resume else []
    steps = list(plan(Visit(), {name: SHAPES[name] for name in options.shapes}))
    first = run_all(steps[:1], file, options.seconds, known)
    # Only a separate process may request GPUs: processes forked after that could use none.
    if first[0].figures.get("device") != "cuda":
        print("torch finds no NVIDIA GPU here: run make gpu on a machine with one.")
        return 1
    spent = first[0].seconds
    outcomes = run_all(steps, file, options.seconds - spent, [*known, *first])
    print(*table(outcomes), f"All figures and the ends of the logs: {file}", sep="\n")
    return int(any(outcome.state != DONE for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
