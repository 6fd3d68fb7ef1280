"""llama.cpp's own server on this machine with the built-in pair: a real engine for tests.

It comes with the wheel `xllamacpp`, and runs in a process of its own, which may be killed:

    python llama_server.py TARGET.gguf [DRAFT.gguf [unused]]

The process prints its address, and ends with its input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MODEL = "target"
CONTEXT = 512  # tokens
GAMMA = 5
PROMPT = "Once upon a time"


@dataclass(frozen=True)
class LlamaServer:
    """A running server. url: of its OpenAI interface; its own addresses are beside /v1.

    software: the wheel's version, since the server's own build number is unset.
    """

    url: str
    software: str
    process: subprocess.Popen[str]


@contextmanager
def llama_server(
    target: Path, draft: Path | None = None, *, unused: bool = False
) -> Iterator[LlamaServer]:
    """Run a server of one GGUF file, alone or with the draft in another one.

    Weights and cache have the precision of the files: fp32 files make an fp32 engine. unused: the
    draft is loaded, but never drafts.
    """
    arguments = [str(one) for one in (target, draft) if one is not None]
    if unused:
        arguments.append("unused")
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, f"the server ended with status {process.wait()}"
        software = f"llama.cpp in xllamacpp {version('xllamacpp')}"
        yield LlamaServer(f"{address}/v1", software, process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def gguf_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Target and draft of the built-in pair as GGUF files in fp32."""
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed, which holds llama.cpp's server")
    from gguf_writer import write_pair  # needs the package gguf

    return write_pair(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="session")
def llama_cpp(gguf_pair: tuple[Path, Path]) -> Iterator[Callable[..., LlamaServer]]:
    """A function that returns a server of the built-in target, which lasts for the session.

    draft: it speculates, up to `GAMMA` tokens in a round. slow: the target drafts for itself, which
    costs more than it saves. unused: it loads a draft that never drafts.
    """
    running: dict[tuple[bool, bool, bool], LlamaServer] = {}
    with ExitStack() as stack:

        def start(draft: bool = False, slow: bool = False, unused: bool = False) -> LlamaServer:
            kind = (draft, slow, unused)
            if kind not in running:
                target, small = gguf_pair
                drafting: Path | None = small if draft or unused else None
                server = llama_server(target, target if slow else drafting, unused=unused)
                running[kind] = stack.enter_context(server)
            return running[kind]

        yield start


def serve(target: str, draft: str | None = None, use: str = "used") -> None:
    """Run a server in this process until its input ends."""
    import xllamacpp as engine

    params = parameters(target)
    params.model_alias = {MODEL}
    params.endpoint_metrics = params.endpoint_props = True
    if draft is not None:
        speculation = params.speculative
        speculation.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculation.draft.mparams.path = draft
        speculation.draft.n_max = GAMMA
        if use == "unused":
            speculation.draft.p_min = 2.0  # no token is that likely
        _run_in_fp32(speculation.draft)
    server = engine.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


def parameters(path: str, context: int = CONTEXT) -> Any:
    """Make llama.cpp's parameters for a file, with an fp32 cache and one thread."""
    import xllamacpp as engine

    params = engine.CommonParams()
    params.model.path = path
    params.n_ctx = context
    # Flash attention rounds the cache to fp16, all of it for each token.
    params.flash_attn_type = engine.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup = params.fit_params = False
    _run_in_fp32(params)
    return params


def _run_in_fp32(params: Any) -> None:
    import xllamacpp as engine

    params.cache_type_k = params.cache_type_v = engine.ggml_type.GGML_TYPE_F32
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1


if __name__ == "__main__":
    serve(*sys.argv[1:])
