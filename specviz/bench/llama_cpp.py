"""llama.cpp's own benchmark programs, run on copies of a pair."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import SpecvizError
from ..models.pair import Pair
from .gguf import KINDS, write_gguf

ALONE, SPECULATIVE = "llama-bench", "llama-speculative-simple"
# It may end before its log is written. What is missing then is the end of the log.
TRIES = 10
TIMEOUT = 600.0  # seconds for one call of a program
DECODED = re.compile(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+) t/s")


class LlamaCpp:
    """llama.cpp's programs and its copies of a pair, one per type of weights.

    folder: the programs. place: an empty folder for the copies. prompts: those that will be used.
    Raises `SpecvizError` if a program is missing, or if the pair cannot be copied.
    """

    def __init__(self, folder: Path, pair: Pair, prompts: Sequence[str], place: Path) -> None:
        self._alone, self._speculative = (_program(folder, n) for n in (ALONE, SPECULATIVE))
        self._files: dict[str, tuple[Path, Path]] = {}  # by type: target, draft
        for kind in KINDS:
            files = place / f"target-{kind}.gguf", place / f"draft-{kind}.gguf"
            for model, file in zip((pair.target, pair.draft), files, strict=True):
                write_gguf(model, pair.tokenizer, file, kind, prompts)
            self._files[kind] = files

    def alone(
        self, context: int, count: int, threads: Sequence[int]
    ) -> Iterator[tuple[str, int, float]]:
        """The target alone: yields the type of its weights, threads, and tokens per second.

        As `llama-bench` does it: `count` random tokens after `context` others, without sampling.
        """
        command = [self._alone, "-p", 0, "-n", count, "-d", context, "-r", 1, "-ngl", 0]
        command += ["-t", ",".join(map(str, threads)), "-o", "json"]
        kinds = {str(target): kind for kind, (target, _) in self._files.items()}
        for file in kinds:
            command += ["-m", file]
        for file, used, rate in bench_rates(_finished(command).stdout):
            yield kinds[file], used, rate

    def speculative(
        self, kind: str, prompt: str, count: int, threads: tuple[int, int], gamma: int
    ) -> tuple[float, str]:
        """Draft and target, greedy: tokens per second without prefill; prompt and text together.

        threads: of the target and of the draft. It writes `count` tokens or a few more: it ends
        after a whole round.
        """
        target, draft = self._files[kind]
        models = ["-m", target, "-md", draft, "--spec-type", "draft-simple", "-ngl", 0, "-ngld", 0]
        wide, narrow = threads
        each = ["-t", wide, "-tb", wide, "-td", narrow, "-tbd", narrow]
        # The cheapest greedy sampler that it has
        greedy = ["--samplers", "top_k", "--top-k", 1, "--temp", 0, "--ignore-eos"]
        run = ["-n", count, "--spec-draft-n-max", gamma, "--no-escape", "-p", prompt]
        for _ in range(TRIES):
            ended = _finished([self._speculative, *models, *each, *greedy, *run])
            rate = speculative_rate(ended.stderr)
            if rate is not None:
                return rate, ended.stdout
        raise SpecvizError(f"{SPECULATIVE} printed no speed: use a newer llama.cpp.")


def bench_rates(output: str) -> list[tuple[str, int, float]]:
    """Model file, threads and tokens per second of each test in the JSON of `llama-bench`."""
    try:
        return [
            (test["model_filename"], test["n_threads"], float(test["samples_ts"][0]))
            for test in json.loads(output)
        ]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise SpecvizError(f"{ALONE} printed no results: use a newer llama.cpp.") from error


def speculative_rate(log: str) -> float | None:
    """Tokens per second without prefill in the log of `llama-speculative-simple`, if it has it."""
    found = DECODED.search(log)
    return float(found[1]) if found else None


def _program(folder: Path, name: str) -> str:
    if not folder.is_dir():
        raise SpecvizError(f"there is no folder {folder}: name the one with llama.cpp's programs.")
    program = shutil.which(name, path=str(folder))
    if program is None:
        raise SpecvizError(
            f"{folder} has no program {name}: build it with cmake --build, --target {name}."
        )
    return program


def _finished(command: Sequence[Any]) -> subprocess.CompletedProcess[str]:
    """A finished call of a program. Raises `SpecvizError` with the last line of its log."""
    words = list(map(str, command))
    name = Path(words[0]).stem
    try:
        ended = subprocess.run(
            words, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecvizError(f"{name} does not run here: build llama.cpp on this machine.") from error
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise SpecvizError(f"{name} failed with code {ended.returncode}: {last}")
    return ended
