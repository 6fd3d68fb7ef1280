"""Everything that only a GPU can show, in one command and less than 25 minutes: the CUDA tests, and
speeds in every form.

Each step has a limit, and the next one runs whatever became of it. Prints one table and writes one
file, after each step, with the figures and the end of what each step printed; whole logs are beside
it. Exit status 1: there is no GPU, or a step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from specviz.base.environment import FORM
from specviz.files.hub import hub_is_reachable
from specviz.pairs.table import at_hand, named_pair

ROOT = Path(__file__).resolve().parent.parent
WHOLE = 24 * 60.0  # seconds for all steps
SHORTEST = 10.0  # seconds: a step is not begun with less
TAIL = 6000  # characters of a log that the file keeps
FORMS = {
    "eager": {FORM.name: "eager"},
    "static": {FORM.name: "fastest"},
}
# None has a licence to accept.
PAIRS = ("qwen2.5-coder-1.5b", "smollm2-1.7b-135m", "qwen3-8b-0.6b")
SPEEDS = ("target alone", "with drafts", "generate()", "generate(assistant)")


@dataclass(frozen=True)
class Step:
    """A command in a process of its own.

    limit: seconds. measures: whether it takes `--out FILE` as `bench` does.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    environment: Mapping[str, str] = field(default_factory=dict)
    measures: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a step. figures: what `bench` wrote, or None. output: the end of its log."""

    name: str
    state: str
    seconds: float = 0.0
    figures: Any = None
    output: str = ""


def bench(name: str, limit: float, form: str, *options: str) -> Step:
    """A step that measures the lanes and `generate()` in one of `FORMS`."""
    fixed = ("--temperatures", "0", "--count", "1", "--repeats", "3", "--gamma", "5")
    command = (sys.executable, "-m", "specviz", "bench", *options, *fixed)
    return Step(name, command, limit, FORMS[form], measures=True)


def plan(options: argparse.Namespace) -> Iterator[Step]:
    """The steps, the most important first."""
    tests = (sys.executable, "-m", "pytest", "tests", "-m", "cuda", "-s")
    yield Step("CUDA tests", (*tests, "--continue-on-collection-errors"), 420)
    for form in FORMS:
        shape = ("--shape", options.shape, "--acceptance", "0.7")
        yield bench(f"{options.shape}, {form}", 240, form, *shape)
    can_fetch = hub_is_reachable()
    for name in options.pairs:
        row = named_pair(name)
        if can_fetch or (row is not None and at_hand(row)):
            yield bench(name, 300, "static", "--pair", name)


def run_step(step: Step, limit: float, folder: Path) -> Outcome:
    """Run a step for at most `limit` seconds; all processes that it started end with it."""
    name = "".join(letter if letter.isalnum() else "-" for letter in step.name)
    log, result = folder / f"{name}.log", folder / f"{name}.json"
    result.unlink(missing_ok=True)
    command = [*step.command, *(("--out", str(result)) if step.measures else ())]
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **step.environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
            state = "passed" if status == 0 else f"failed with exit status {status}"
        except subprocess.TimeoutExpired:
            state = f"stopped at its limit of {limit:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    figures = None
    with suppress(OSError, ValueError):
        figures = json.loads(result.read_text("utf-8"))
    tail = log.read_text("utf-8", errors="replace")[-TAIL:]
    return Outcome(step.name, state, round(time.monotonic() - began, 1), figures, tail)


def run_all(steps: Iterator[Step], folder: Path, file: Path, whole: float = WHOLE) -> list[Outcome]:
    """Run the steps within `whole` seconds in all; `file` is written again after each."""
    folder.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + whole, []
    for step in steps:
        limit = min(step.limit, end - time.monotonic())
        if limit < min(SHORTEST, step.limit):
            outcomes.append(Outcome(step.name, "not run: no time was left"))
        else:
            print(f"{step.name}: at most {limit:.0f} s", flush=True)
            outcomes.append(run_step(step, limit, folder))
        file.write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n", "utf-8")
    return outcomes


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The outcomes as Markdown; speeds in tokens/s."""
    yield "| step | state | seconds | " + " | ".join(SPEEDS) + " | one-token pass | a round |"
    yield "|---" * (len(SPEEDS) + 5) + "|"
    for one in outcomes:
        cells = [one.name, one.state, f"{one.seconds:.0f}", *_figures(one.figures)]
        yield "| " + " | ".join(cells) + " |"


def _figures(found: Any) -> list[str]:
    """The medians of the speeds, and how far pass and round are from their floors."""
    try:
        row, floors = found["rows"][0], found["floors"]
        speeds = [f"{row['tokens_per_second'][name]['median']:.1f}" for name in SPEEDS]
        one, gamma = row["pass_seconds"]["1"], found["settings"]["gamma"]
        least = floors["target"]["seconds"]
        least_round = least + gamma * floors["draft"]["seconds"]
        took = row["pass_seconds"][str(gamma + 1)] + gamma * row["draft_step_seconds"]
        took += row["overhead_seconds"]
    except (KeyError, TypeError, IndexError):
        return [""] * (len(SPEEDS) + 2)
    shares = [f"{one * 1e3:.2f} ms, {least / one:.0%} of the bandwidth"]
    return [*speeds, *shares, f"{took * 1e3:.2f} ms, {took / least_round:.2f} times its floor"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="llama-3.1-8b+3.2-1b", help="as of bench")
    parser.add_argument("--pairs", nargs="*", default=PAIRS, help="of the hub, or at hand")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="folder")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(f"make gpu needs an NVIDIA GPU, and torch {torch.__version__} finds none here.")
        return 1
    file = options.output / "results.json"
    outcomes = run_all(plan(options), options.output, file)
    print(*table(outcomes), f"All figures and the ends of the logs: {file}", sep="\n")
    return int(any(one.state != "passed" for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
