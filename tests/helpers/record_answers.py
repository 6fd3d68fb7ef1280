"""Real answers of serving engines, kept in tests/remote/recorded with the version that gave them.

    python tests/helpers/record_answers.py vllm http://HOST:8000/v1 [http://SPECULATING:8001/v1]
    python tests/helpers/record_answers.py llama.cpp

The servers hold the built-in target under the name "target"; the second one speculates by itself,
with --per-request-spec-decode-metrics detailed. llama.cpp's server is started for it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

RECORDED = Path(__file__).resolve().parent.parent / "remote" / "recorded"
MODEL = "target"
PROMPT = [47, 1398, 628, 259, 578]  # "Once upon a time"
SEVERAL = [PROMPT[:-2], PROMPT[:-1], PROMPT]
LISTED = {"max_tokens": 1, "logprobs": 3, "return_tokens_as_token_ids": True, "temperature": 0.0}
STREAMED = {
    "prompt": PROMPT,
    "max_tokens": 12,
    "temperature": 0.0,
    "stream": True,
    "return_token_ids": True,
    "stream_options": {"include_usage": True},
}
OF_VLLM: dict[str, tuple[str, str, Any]] = {
    "version": ("GET", "/version", None),
    "models": ("GET", "/v1/models", None),
    "tokenize": ("POST", "/tokenize", {"prompt": "Once upon", "add_special_tokens": False}),
    "detokenize": ("POST", "/detokenize", {"tokens": PROMPT}),
    "several prefixes": ("POST", "/v1/completions", {"prompt": SEVERAL, **LISTED}),
    "no such model": ("POST", "/v1/completions", {"model": "other", "prompt": [PROMPT], **LISTED}),
    "streamed": ("POST", "/v1/completions", STREAMED),
}
OF_THE_MACHINE = {"created": 0, "root": MODEL, "generation_settings": {}}
STEPS = {"n_predict": 12, "temperature": 0.0, "stream": True, "timings_per_token": True}
OF_LLAMA_CPP: dict[str, tuple[str, str, Any]] = {
    "models": ("GET", "/v1/models", None),
    "tokenize": ("POST", "/tokenize", {"content": "Once upon"}),
    "detokenize": ("POST", "/detokenize", {"tokens": PROMPT}),
    "several prefixes": (
        "POST",
        "/completion",
        {"prompt": SEVERAL, "n_predict": 1, "temperature": 0.0, "n_probs": 3},
    ),
    "streamed": ("POST", "/completion", {"prompt": PROMPT, "return_tokens": True, **STEPS}),
}


def exchange(root: str, method: str, path: str, body: Any) -> dict[str, Any]:
    """Send a request, and return it with its answer: a JSON value, or all chunks of a stream."""
    asked = body if body is None else {"model": MODEL, **body}
    answer = httpx.request(method, root + path, json=asked, timeout=120)
    if asked is not None and asked.get("stream"):
        lines = (line.removeprefix("data: ") for line in answer.text.splitlines() if line)
        value: Any = [line if line == "[DONE]" else json.loads(line) for line in lines]
    else:
        value = answer.json()
    question = {"method": method, "path": path, "asked": asked}
    return {**question, "status": answer.status_code, "answer": plain(value)}


def plain(value: Any) -> Any:
    """Remove values that depend on the machine or the moment."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: OF_THE_MACHINE.get(key, plain(one)) for key, one in value.items()}


def record(url: str, questions: dict[str, tuple[str, str, Any]]) -> dict[str, Any]:
    """Send all `questions` to a server."""
    root = url.removesuffix("/v1")
    return {name: exchange(root, *question) for name, question in questions.items()}


def save(engine: str, software: str, flags: str, exchanges: dict[str, Any]) -> None:
    """Write one file of `RECORDED`; the same answers give the same bytes."""
    RECORDED.mkdir(exist_ok=True)
    lines = [f'"software": {json.dumps(software)}', f'"flags": {json.dumps(flags)}']
    lines += [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in exchanges.items()]
    (RECORDED / f"{engine}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def recorded(engine: str) -> dict[str, Any]:
    """Read a file of `RECORDED`: exchanges by name, with "software" and "flags"."""
    found: dict[str, Any] = json.loads((RECORDED / f"{engine}.json").read_text("utf-8"))
    return found


def main(engine: str, *urls: str) -> None:
    if engine == "vllm":
        exchanges = record(urls[0], OF_VLLM)
        for url in urls[1:]:
            streamed = {"streamed with speculation": OF_VLLM["streamed"]}
            exchanges |= record(url, streamed)
        version = exchanges["version"]["answer"]["version"]
        flags = "--dtype float32 --max-logprobs -1 --enable-prompt-tokens-details"
        save(engine, f"vLLM {version}", flags, exchanges)
        return
    from gguf_writer import write_pair
    from llama_server import llama_server

    with tempfile.TemporaryDirectory() as folder:
        files = write_pair(Path(folder))
        with llama_server(files[0]) as server:
            exchanges = record(server.url, OF_LLAMA_CPP)
        with llama_server(*files) as server:
            streamed = {"streamed with speculation": OF_LLAMA_CPP["streamed"]}
            exchanges |= record(server.url, streamed)
            save("llama.cpp", server.software, "", exchanges)


if __name__ == "__main__":
    main(*sys.argv[1:])
