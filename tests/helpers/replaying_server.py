"""A server on this machine that answers as a serving engine once did: whole, or chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from local_server import QuietHandler, serving
from record_answers import recorded

STREAMS = ("/v1/completions", "/completion", "/generate")
COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")


@dataclass
class Replay:
    """A running server. answers: by path. chunks: of its stream; after the last one the connection
    is cut if `is_cut`. counted: what a stream adds to its counters, if it has any. asked: the
    bodies of the requests for streams."""

    answers: dict[str, Any]
    chunks: Sequence[Any]
    engine: str = "vllm"
    counted: Sequence[int] = ()
    is_cut: bool = False
    url: str = ""
    streams: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counters(self) -> str:
        return "".join(
            f'{self.engine}:spec_decode_num_{name}_total{{model_name="target"}} '
            f"{float(step * self.streams)}\n"
            for name, step in zip(COUNTERS, self.counted, strict=False)
        )


def replay_of(engine: str, stream: str = "streamed with speculation", **options: Any) -> Replay:
    """The server of a recorded engine, "vllm" or "llama.cpp", with one of its streams."""
    exchanges = recorded(engine)
    answers = {
        one["path"]: one["answer"]
        for one in exchanges.values()
        if isinstance(one, dict) and one["path"] not in STREAMS
    }
    options.setdefault("engine", engine.replace(".", ""))
    return Replay(answers, exchanges[stream]["answer"], **options)


@contextmanager
def replaying(replay: Replay) -> Iterator[Replay]:
    """`replay`, running."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics" and replay.counted:
                self.send(200, replay.counters.encode())
            else:
                self.respond()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path not in STREAMS:
                self.respond()
                return
            replay.asked.append(body)
            replay.streams += 1
            self.send_response(200)
            self.end_headers()
            for chunk in replay.chunks:
                said = chunk if isinstance(chunk, str) else json.dumps(chunk)
                self.wfile.write(f"data: {said}\n\n".encode())
                self.wfile.flush()
            if replay.is_cut:
                self.connection.close()

        def respond(self) -> None:
            known = self.path in replay.answers
            value = replay.answers[self.path] if known else {"error": "not here"}
            self.send(200 if known else 404, json.dumps(value).encode())

    with serving(Handler) as url:
        replay.url = f"{url}/v1"
        yield replay
