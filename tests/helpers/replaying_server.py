"""A server that replays recorded answers of a serving engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from local_server import Handler, serving
from record_answers import recorded

STREAMS = ("/v1/completions", "/completion", "/generate")
COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")


@dataclass
class Replay:
    """A running server.

    answers: by path. chunks: of its stream. counted: what each stream adds to its counters, if it
    has any. asked: the bodies of the requests for streams.
    """

    answers: dict[str, Any]
    chunks: Sequence[Any]
    engine: str = "vllm"
    counted: Sequence[int] = ()
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counters(self) -> str:
        return "".join(
            f'{self.engine}:spec_decode_num_{name}_total{{model_name="target"}} '
            f"{float(step * len(self.asked))}\n"
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
    """Run `replay`."""

    class Replaying(Handler):
        def respond(self, body: dict[str, Any]) -> None:
            if self.path == "/metrics" and replay.counted:
                self.answer(200, replay.counters.encode())
            elif self.path in STREAMS:
                replay.asked.append(body)
                texts = (one if isinstance(one, str) else json.dumps(one) for one in replay.chunks)
                self.stream(f"data: {text}\n\n".encode() for text in texts)
            elif self.path in replay.answers:
                self.answer(200, replay.answers[self.path])
            else:
                self.answer(404, {"error": "not here"})

    with serving(Replaying) as url:
        replay.url = f"{url}/v1"
        yield replay
