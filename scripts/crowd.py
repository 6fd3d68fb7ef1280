"""A load test: many visitors over HTTP watch recordings, run, stop, and leave at any moment.

    python -m scripts.crowd http://127.0.0.1:7860 --visitors 50 --seconds 60

It prints one JSON object: counts, and the seconds until first events and replays. The visitors
send the same requests as the page in a browser, but draw nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any
from uuid import uuid4

import httpx

TIMEOUT = 120.0  # seconds; a request that takes longer is an error
PROMPTS = ("Once upon a time", "The little dog", "Tom and Anna went to the park", "1 2 3 4")
FULL = "runs are waiting already"


class Crowd:
    """What all visitors share: the HTTP client, the page's config, counts, errors and waits."""

    def __init__(self, client: httpx.AsyncClient, config: dict[str, Any], tokens: int) -> None:
        self.client, self.tokens = client, tokens
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        named = {one["api_name"]: one for one in config["dependencies"]}
        self.start, self.halt = named["start"], named["halt"]
        parts = {one["id"]: one["props"] for one in config["components"]}
        self.values = [parts[part].get("value") for part in self.start["inputs"]]
        labels = [parts[part].get("label") for part in self.start["inputs"]]
        self.length = labels.index("Length")
        self.player = next(key for key, one in parts.items() if one.get("elem_id") == "player")
        mount = str(parts[self.player]["js_on_load"])
        self.recordings = re.findall(r'gradio_api/file=[^"]+\.json\.gz', mount)

    def fail(self, what: str) -> None:
        self.errors.append(what)


class Visitor:
    """One browser tab."""

    def __init__(self, crowd: Crowd, chance: random.Random) -> None:
        self.crowd, self.chance = crowd, chance
        self.session = uuid4().hex[:11]
        # As a proxy on this machine would: each visitor has a share of the page.
        address = ".".join(str(chance.randrange(256)) for _ in range(3))
        self.headers = {"X-Forwarded-For": f"10.{address}"}

    async def open(self) -> None:
        """Open the page and load a recording, if there is one, as the page does."""
        began = time.perf_counter()
        await self._get("/")
        if self.crowd.recordings:
            raw = await self._get("/" + self.chance.choice(self.crowd.recordings))
            rounds = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)["rounds"]
            if not rounds:
                self.crowd.fail("a recording without rounds")
            self.crowd.waits["replay"].append(time.perf_counter() - began)
        self.crowd.counts["visits"] += 1

    async def run(self) -> None:
        """Start a run and follow it to its end."""
        over = False
        async with aclosing(self._deltas()) as deltas:
            async for delta in deltas:
                over = delta["over"]
        if not over:
            self.crowd.fail("a run without an end")
        self.crowd.counts["runs"] += 1

    async def stop(self) -> None:
        """Start a run and stop it, with two requests at the same time."""
        deltas = 0
        async with aclosing(self._deltas()) as heard:
            async for delta in heard:
                deltas += 1
                if deltas == 3 and not delta["over"]:
                    await asyncio.gather(
                        self._join(self.crowd.halt, []), self._join(self.crowd.halt, [])
                    )
        self.crowd.counts["stopped"] += 1

    async def leave(self) -> None:
        """Start a run and close the tab after a random time, perhaps before the first event."""
        moment = self.chance.choice([0.0, 0.01, 0.15, 0.5, 1.5])
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._drain(), moment)
        self.crowd.counts["left"] += 1

    async def ask(self) -> None:
        """Ask the server a question of the player that is not about a live run."""
        began = time.perf_counter()
        missed = await self._question("missed", {"run": "", "seq": 0})
        self.crowd.waits["question"].append(time.perf_counter() - began)
        if missed != []:
            self.crowd.fail(f"a question got {missed!r}")
        self.crowd.counts["questions"] += 1

    async def _drain(self) -> None:
        async with aclosing(self._deltas()) as deltas:
            async for _ in deltas:
                pass

    async def _deltas(self) -> AsyncGenerator[dict[str, Any], None]:
        """Start a run and yield its deltas; their numbers must be consecutive."""
        values = list(self.crowd.values)
        values[0] = self.chance.choice(PROMPTS)
        values[self.crowd.length] = self.crowd.tokens
        began, expected, waited = time.perf_counter(), 0, set()
        await self._join(self.crowd.start, values)
        async with aclosing(self._messages()) as messages:
            async for message in messages:
                text = _newest(message)
                if text is None:
                    continue
                delta = json.loads(text)
                if delta["next"] < expected:
                    continue
                if delta["seq"] > expected:
                    self.crowd.fail(f"a gap before event {delta['seq']}")
                expected = delta["next"]
                for kind, there in (("event", True), ("round", "rounds" in delta)):
                    if there and kind not in waited:
                        waited.add(kind)
                        self.crowd.waits[kind].append(time.perf_counter() - began)
                if delta.get("error"):
                    self._refused(delta["error"])
                yield delta

    def _refused(self, sentence: str) -> None:
        if FULL in sentence:
            self.crowd.counts["refused"] += 1
        else:
            self.crowd.fail(sentence)

    async def _messages(self) -> AsyncGenerator[dict[str, Any], None]:
        address = f"/gradio_api/queue/data?session_hash={self.session}"
        async with self.crowd.client.stream("GET", address, headers=self.headers) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                message = json.loads(line[5:])
                if message["msg"] == "close_stream":
                    return
                if message["msg"] == "process_completed" and not message["success"]:
                    self.crowd.fail(f"an event failed: {message['output']}")
                yield message

    async def _join(self, event: dict[str, Any], values: list[Any]) -> None:
        body = {"data": values, "fn_index": event["id"], "session_hash": self.session}
        answer = await self._post("/gradio_api/queue/join", body)
        answer.raise_for_status()

    async def _post(self, address: str, body: dict[str, Any]) -> httpx.Response:
        return await self.crowd.client.post(address, json=body, headers=self.headers)

    async def _question(self, name: str, data: dict[str, Any]) -> Any:
        body = {
            "data": data,
            "fn_name": name,
            "component_id": self.crowd.player,
            "session_hash": self.session,
        }
        answer = await self._post("/gradio_api/component_server", body)
        answer.raise_for_status()
        return answer.json()

    async def _get(self, address: str) -> bytes:
        answer = await self.crowd.client.get(address, headers=self.headers)
        answer.raise_for_status()
        return answer.content


def _newest(message: dict[str, Any]) -> str | None:
    """The player's newest value in a message from Gradio, which sends only changes."""
    if message["msg"] not in ("process_generating", "process_completed"):
        return None
    values = message["output"].get("data") or [None]
    value = values[0]
    if isinstance(value, list):
        whole = [new for action, path, new in value if action == "replace" and path == []]
        value = whole[-1] if whole else None
    return value if isinstance(value, str) else None


async def _visit_until(crowd: Crowd, deadline: float, chance: random.Random) -> None:
    """Visits one after another, each with a random action."""
    while time.monotonic() < deadline:
        visitor = Visitor(crowd, chance)
        actions = (visitor.run, visitor.stop, visitor.leave, visitor.ask, None)
        action = chance.choices(actions, (30, 10, 20, 20, 20))[0]
        await _watched(crowd, visitor.open)
        if action is not None:
            await _watched(crowd, action)
        await asyncio.sleep(chance.uniform(0, 0.5))


async def _run_many(crowd: Crowd, left: list[int], chance: random.Random) -> None:
    """Start runs one after another until `left` is 0."""
    while left[0] > 0:
        left[0] -= 1
        await _watched(crowd, Visitor(crowd, chance).run)


async def _ask_many(crowd: Crowd, left: list[int], chance: random.Random) -> None:
    """Make visits that only ask a question, one after another, until `left` is 0."""
    while left[0] > 0:
        left[0] -= 1
        await _watched(crowd, Visitor(crowd, chance).ask)


async def _watched(crowd: Crowd, action: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.wait_for(action(), TIMEOUT)
    except (TimeoutError, asyncio.TimeoutError):
        crowd.fail("nothing happened for too long")
    except httpx.HTTPError as error:
        crowd.fail(f"{type(error).__name__}: {error}")


async def crowd_figures(
    url: str,
    visitors: int,
    *,
    seconds: float = 0.0,
    runs: int = 0,
    questions: int = 0,
    tokens: int = 16,
    seed: int = 0,
) -> dict[str, Any]:
    """Visit the page and return counts, errors and waits in seconds.

    visitors: at the same time. Mixed actions for `seconds`, unless `runs` or `questions` is above
    0: then only so many of these. tokens: the length of a run.
    """
    # The server closes idle connections after five seconds, so they are not reused after two.
    limits = httpx.Limits(max_connections=4 * visitors, keepalive_expiry=2.0)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits) as client:
        config = (await client.get("/config")).json()
        crowd = Crowd(client, config, tokens)
        left, deadline = [runs or questions], time.monotonic() + seconds

        def visits(chance: random.Random) -> Coroutine[Any, Any, None]:
            if runs:
                return _run_many(crowd, left, chance)
            if questions:
                return _ask_many(crowd, left, chance)
            return _visit_until(crowd, deadline, chance)

        chances = [random.Random(f"{seed} {number}") for number in range(visitors)]
        await asyncio.gather(*map(visits, chances))
    return {
        "counts": dict(crowd.counts),
        "errors": len(crowd.errors),
        "first_errors": crowd.errors[:5],
        "waits": {kind: _quantiles(waits) for kind, waits in crowd.waits.items()},
    }


def _quantiles(waits: list[float]) -> dict[str, float]:
    """The median and the 95th percentile of waits in seconds."""
    cuts = statistics.quantiles([*waits, *waits], n=20, method="inclusive")
    return {"p50": round(cuts[9], 3), "p95": round(cuts[18], 3)}


def main() -> None:
    """Run the load test of the command line and print its results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--runs", type=int, default=0, help="only so many runs, without a time limit"
    )
    parser.add_argument("--questions", type=int, default=0, help="only so many questions")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    figures = crowd_figures(
        options.url,
        options.visitors,
        seconds=options.seconds,
        runs=options.runs,
        questions=options.questions,
        tokens=options.tokens,
        seed=options.seed,
    )
    print(json.dumps(asyncio.run(figures)))


if __name__ == "__main__":
    main()
