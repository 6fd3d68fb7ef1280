"""Test specviz against a real serving engine with one command: `make engines`.

    make engines                 installs vLLM for processors into build/engines/vllm (3.5 GB)
    make engines VLLM=PATH       uses the virtual environment at PATH
    make engines ARGS="--only 'two nodes'"

vLLM serves the built-in target alone, with its own speculation by the built-in draft and by
n-grams, and on two nodes with tensor parallelism; and a pair with so few words that whole texts can
be counted. Each is compared with the same target here. It prints one table, and writes it with all
figures to a file after each server. Exit status 1: a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from specviz import Pair, SpecvizError, load_pair
from specviz.base.environment import ASSETS
from specviz.core.pair import checked_pair
from specviz.remote.wire import Server
from specviz.sides.served.adapters import Completions

from . import checks
from .checks import Finding, found
from .deployments import (
    GAMMA,
    MODEL,
    Deployment,
    Running,
    installed,
    running,
    save_few_words,
    speculating,
)

ROOT = Path(__file__).resolve().parent.parent.parent
TEXTS = 400  # whose frequencies are counted
AT_ONCE = 1000  # texts in one request, of which vLLM allows 1,024
ALONE = "alone"
FEW = "few words"
DRAWN = "few words, drawn there"
RESULTS = {True: "passed", False: "FAILED", None: "found"}
Row = tuple[str, Finding]
Named = tuple[str, Callable[[], Finding]]


def deployments(folder: Path) -> Iterator[Deployment]:
    """The ways to serve, the plainest first."""
    target = ASSETS / "pair" / "target"
    draft = ASSETS / "pair" / "draft"
    with_draft = speculating({"model": str(draft)})
    ngram = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    yield Deployment(ALONE, target, draft)
    yield Deployment("its own draft", target, draft, with_draft)
    yield Deployment("its own n-grams", target, draft, speculating(ngram))
    yield Deployment("two nodes", target, draft, nodes=2)
    target, draft = save_few_words(folder)
    with_draft = speculating({"model": str(draft)})
    yield Deployment(FEW, target, draft, with_draft)
    # It lists too few log-probabilities of too few words: exact only by its own draws.
    drawn = ("--max-logprobs", "3", "--logprobs-mode", "processed_logprobs")
    yield Deployment(DRAWN, target, draft, drawn)


def asked(server: Running, local: Pair) -> Iterator[Named]:
    """The checks of one running server, the last of which may end it."""
    deployment = server.deployment
    address = f"{server.url}#{MODEL}"
    remote = checked_pair(load_pair(f"{address}+{deployment.draft}"))
    completions = Completions(Server(server.url), MODEL)
    if deployment.name in (FEW, DRAWN):
        own = partial(checks.its_own_distribution, completions, local, AT_ONCE)
        yield "its own distribution", own
        yield "same distribution", partial(checks.same_distribution, remote, local, TEXTS)
        return
    yield "greedy", partial(checks.same_tokens, remote, local, checks.GREEDY)
    yield "temperature 0.8, top-p 0.95", partial(checks.same_tokens, remote, local, checks.SAMPLED)
    yield "its own text", partial(checks.its_own_text, completions, local)
    if deployment.options:
        yield "its own speculation, watched", partial(checks.watched, address, local)
        yield "its own speculation, audited", partial(checks.audited, address)
    yield "cost", partial(checks.cost, remote, completions)
    if deployment.name == ALONE or deployment.nodes > 1:
        yield "killed during a run", partial(checks.killed, remote, server.kill)


def examine(python: Path, deployment: Deployment, folder: Path) -> Iterator[Row]:
    """Start a server, check it, and end it."""
    print(f"{deployment.name}: starting", flush=True)
    try:
        with running(python, deployment, folder) as server:
            started = Finding("starts", True, "answers", round(server.seconds, 1))
            yield deployment.name, started
            local = checked_pair(load_pair(f"{deployment.target}+{deployment.draft}"))
            for name, ask in asked(server, local):
                print(f"{deployment.name}: {name}", flush=True)
                yield deployment.name, found(name, ask)
    except SpecvizError as error:
        yield deployment.name, Finding("starts", False, str(error))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The findings as Markdown."""
    yield "| server | check | result | seconds | figures |"
    yield "|---|---|---|---|---|"
    for name, finding in rows:
        result = RESULTS[finding.passed]
        yield f"| {name} | {finding.check} | {result} | {finding.seconds:.0f} | {finding.says} |"


def write(file: Path, version: str, rows: Sequence[Row]) -> None:
    """Write all findings, with the versions behind them."""
    results = {
        "engine": f"vLLM {version}",
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "gamma": GAMMA,
        "findings": [{"server": name, **asdict(finding)} for name, finding in rows],
    }
    file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    output = ROOT / "build" / "engines"
    parser.add_argument("--vllm", type=Path, default=output / "vllm", help="its environment")
    parser.add_argument("--only", nargs="*", help="names of the servers to start")
    parser.add_argument("--output", type=Path, default=output, help="folder of results and logs")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    planned = list(deployments(options.output / "few-words"))
    names = [deployment.name for deployment in planned]
    unknown = set(options.only or ()) - set(names)
    if unknown:
        parser.error(f"no server is named {unknown.pop()!r}: choose from {', '.join(names)}.")
    version = installed(options.vllm)
    python = options.vllm.absolute() / "bin" / "python"
    rows: list[Row] = []
    for deployment in planned:
        if options.only and deployment.name not in options.only:
            continue
        for row in examine(python, deployment, options.output):
            rows.append(row)
            write(options.output / "results.json", version, rows)
    print(*table(rows), f"All figures: {options.output / 'results.json'}", sep="\n")
    return int(any(finding.passed is False for _, finding in rows))


if __name__ == "__main__":
    sys.exit(main())
