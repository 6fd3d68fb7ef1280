"""llama.cpp as an oracle about many small files, in one process, from the wheel `xllamacpp`.

python llama_oracle.py    reads a question per line, as JSON, and writes an answer per line
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any

import pytest
from llama_server import CONTEXT, parameters

TIMEOUT = 20.0  # seconds for an answer


class LlamaOracle:
    """Asks a process with llama.cpp, which is started again if a file ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def log_probabilities(self, path: Path, ids: Sequence[int], context: int = CONTEXT) -> Any:
        """Log-probabilities of the token after `ids`, by id; None if the file is refused."""
        return self._ask(file=str(path), ids=[*ids], context=context).get("next")

    def tokens(self, path: Path, text: str, *, add_special: bool = False) -> list[int] | None:
        """Tokenize a text; None if the file is refused."""
        return self._ask(file=str(path), text=text, add_special=add_special).get("tokens")

    def _ask(self, **question: Any) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        has_answer, _, _ = select([process.stdout], [], [], TIMEOUT)
        answer = process.stdout.readline() if has_answer else ""
        if not answer:  # a check in llama.cpp ended it, or it waits for ever
            self.end()
            return {}
        return dict(json.loads(answer))

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def llama_oracle() -> Iterator[LlamaOracle]:
    """Start an oracle that ends with the block."""
    oracle = LlamaOracle()
    try:
        yield oracle
    finally:
        oracle.end()


@pytest.fixture(scope="session")
def oracle() -> Iterator[LlamaOracle]:
    """llama.cpp for all files of a session."""
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed, which holds llama.cpp")
    with llama_oracle() as started:
        yield started


def answer(question: dict[str, Any], servers: dict[Any, Any], client: Any) -> dict[str, Any]:
    """Ask llama.cpp about a file, which stays open: closing one would wait for its clients."""
    import xllamacpp as engine

    context = question.get("context", CONTEXT)
    key = question["file"], os.stat(question["file"]).st_mtime_ns, context
    if key not in servers:
        try:
            servers[key] = engine.Server(parameters(question["file"], context))
        except RuntimeError:
            return {}
    server = servers[key]
    address = server.listening_address
    if "text" in question:
        body = {"content": question["text"], "add_special": question["add_special"]}
        return dict(client.post(f"{address}/tokenize", json=body).json())
    # An end, or a part of a character, would be said without probabilities: so a letter is drawn,
    # which changes none of the probabilities that the model gives.
    body = {
        "prompt": question["ids"],
        "n_predict": 1,
        "n_probs": 100_000,
        "logit_bias": [["a", 1000.0]],
    }
    said = client.post(f"{address}/completion", json=body).json()
    found = said["completion_probabilities"][0]["top_logprobs"]
    return {"next": {one["id"]: one["logprob"] for one in found}}


def main() -> None:
    """Answer until the input ends."""
    import httpx

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # where llama.cpp writes as well
    servers: dict[Any, Any] = {}
    client = httpx.Client(timeout=60)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), servers, client)), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
