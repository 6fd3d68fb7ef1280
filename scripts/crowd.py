"""The second process of `make soak`: visitors and strangers, who use the page over HTTP.

Visitors watch recordings, run, stop, and leave at any moment; they send the same requests as the
page in a browser, but draw nothing. Strangers send what the page never sends: runs that nobody
reads, new sessions, malformed requests, and files that are expensive to parse.

    python -m scripts.crowd '{"url": "http://127.0.0.1:7860", "visitors": 50, "seconds": 60}'

takes the arguments of `crowd_figures` and prints its results.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from itertools import count, takewhile
from typing import Any
from uuid import uuid4

import httpx

TIMEOUT = 120.0  # seconds; a request that takes longer is an error
PROMPTS = ("Once upon a time", "The little dog", "Tom and Anna went to the park", "1 2 3 4")
FULL = "runs are waiting already"
ACTIONS = {"run": 30, "stop": 10, "leave": 20, "ask": 20, "": 20}
"""The actions of visitors on the page, with their weights in percent."""

RUN = "run"
PAUSE = 0.05  # seconds between two requests of a stranger
EXPECTED = {200, 400, 413, 429, 503}
BOMB = gzip.compress(b"[" + b"[]," * 5_500_000 + b"[]]")


class Crowd:
    """The shared state: the HTTP client, the page's offer, and the results.

    counts, errors, waits: of visitors. statuses, failures: of strangers.
    """

    def __init__(self, client: httpx.AsyncClient, offer: dict[str, Any], tokens: int) -> None:
        self.client = client
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        self.statuses: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.settings = {**offer["defaults"], "max_new_tokens": tokens}
        self.recordings = list(offer["recordings"].values())

    async def watch(self, action: Awaitable[None]) -> None:
        """Wait for a visitor's action; its failure is an error."""
        try:
            await asyncio.wait_for(action, TIMEOUT)
        except (TimeoutError, asyncio.TimeoutError):
            self.errors.append("nothing happened for too long")
        except httpx.HTTPError as error:
            self.errors.append(f"{type(error).__name__}: {error}")


class Visitor:
    """One browser tab."""

    def __init__(self, crowd: Crowd, chance: random.Random) -> None:
        self.crowd = crowd
        self.chance = chance
        self.session = uuid4().hex
        # As a proxy on this machine would: each visitor has a share of the page.
        numbers = [str(chance.randrange(256)) for _ in range(3)]
        address = ".".join(["10", *numbers])
        self.headers = {"X-Forwarded-For": address}

    async def open(self) -> None:
        """Open the page and load a recording, if there is one, as the page does."""
        began = time.perf_counter()
        await self._get("/")
        if self.crowd.recordings:
            recording = self.chance.choice(self.crowd.recordings)
            raw = await self._get(f"/{recording}")
            if raw[:2] == b"\x1f\x8b":
                raw = gzip.decompress(raw)
            if not json.loads(raw)["rounds"]:
                self.crowd.errors.append("a recording without rounds")
            self.crowd.waits["replay"].append(time.perf_counter() - began)
        self.crowd.counts["visits"] += 1

    async def run(self) -> None:
        """Start a run and follow it to its end."""
        if not await self._follow():
            self.crowd.errors.append("a run without an end")
        self.crowd.counts["runs"] += 1

    async def stop(self) -> None:
        """Start a run and stop it, with two requests at the same time."""
        await self._follow(stops=True)
        self.crowd.counts["stopped"] += 1

    async def leave(self) -> None:
        """Start a run and close the tab after a random time, perhaps before the first event."""
        moment = self.chance.choice([0.0, 0.01, 0.15, 0.5, 1.5])
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._follow(), moment)
        self.crowd.counts["left"] += 1

    async def ask(self) -> None:
        """Ask the server a question of the player that is not about a live run."""
        began = time.perf_counter()
        answer = await self._post("ask/missed", {"run": "", "seq": 0})
        missed = answer.json()
        self.crowd.waits["question"].append(time.perf_counter() - began)
        if missed != []:
            self.crowd.errors.append(f"a question got {missed!r}")
        self.crowd.counts["questions"] += 1

    async def _follow(self, *, stops: bool = False) -> bool:
        """Start a run and read its deltas, whose numbers must be consecutive; whether it ended.

        stops: after three deltas, ask twice that it stop.
        """
        prompt = self.chance.choice(PROMPTS)
        fields = {**self.crowd.settings, "prompt": prompt, "session": self.session}
        began = time.perf_counter()
        received: Counter[str] = Counter()
        expected = 0
        over = False
        async for delta in self._deltas(fields):
            if delta["next"] < expected:
                continue
            if delta["seq"] > expected:
                self.crowd.errors.append(f"a gap before event {delta['seq']}")
            expected = delta["next"]
            over = delta["over"]
            kinds = ["event"]
            if "rounds" in delta:
                kinds.append("round")
            for kind in kinds:
                received[kind] += 1
                if received[kind] == 1:
                    self.crowd.waits[kind].append(time.perf_counter() - began)
            self._note_error(delta.get("error"))
            if stops and received["event"] == 3 and not over:
                stop = {"session": self.session}
                await asyncio.gather(self._post("ask/stop", stop), self._post("ask/stop", stop))
        return over

    def _note_error(self, error: str | None) -> None:
        """Note the error of a run; a full queue is none."""
        if error and FULL in error:
            self.crowd.counts["refused"] += 1
        elif error:
            self.crowd.errors.append(error)

    async def _deltas(self, fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The deltas of a run."""
        client = self.crowd.client
        async with client.stream("POST", f"/{RUN}", json=fields, headers=self.headers) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    async def _post(self, address: str, question: dict[str, Any]) -> httpx.Response:
        answer = await self.crowd.client.post(f"/{address}", json=question, headers=self.headers)
        return answer.raise_for_status()

    async def _get(self, address: str) -> bytes:
        answer = await self.crowd.client.get(address, headers=self.headers)
        return answer.raise_for_status().content


async def _annoy(crowd: Crowd, chance: random.Random, address: str) -> int:
    """Send something that the page never sends; returns the status of the answer."""
    name = f"{chance.randrange(2**40):x}"
    event = {"fn_index": 0, "session_hash": name}
    requests: tuple[tuple[str, Any], ...] = (
        ("/gradio_api/call/v2/generate", {"prompt": PROMPTS[0], "max_new_tokens": 512}),
        ("/gradio_api/queue/join", {**event, "data": []}),
        ("/gradio_api/queue/join", {**event, "data": [["x"] * 1000]}),
        ("/run", {"session": name}),
        ("/ask/missed", {"seq": name}),
        ("/files/trace", BOMB),
    )
    path, body = chance.choice(requests)
    kind = "octet-stream"
    content = body
    if body is not BOMB:
        kind = "json"
        content = json.dumps(body)
    headers = {"X-Forwarded-For": address, "Content-Type": f"application/{kind}"}
    answer = await crowd.client.post(path, content=content, headers=headers)
    return answer.status_code


async def crowd_figures(
    url: str,
    visitors: int,
    *,
    strangers: int = 0,
    seconds: float = 0.0,
    only: str = "",
    times: int = 0,
    tokens: int = 16,
    seed: int = 0,
) -> dict[str, Any]:
    """Visit the page and return counts, errors and waits in seconds; of strangers, how often they
    got each status, and answers that the page should not have given.

    visitors, strangers: at the same time. Mixed actions for `seconds`, or `only` one action, this
    many `times`. tokens: the length of a run.
    """
    # The server closes idle connections after five seconds, so they are not reused after two.
    max_connections = 4 * (visitors + strangers)
    limits = httpx.Limits(max_connections=max_connections, keepalive_expiry=2.0)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits) as client:
        page = await client.get("/")
        crowd = Crowd(client, _offer_in(page.text), tokens)
        deadline = time.monotonic() + seconds
        if only:
            turns: Iterator[int] = iter(range(times))
        else:
            turns = takewhile(lambda _: time.monotonic() < deadline, count())
        tabs: list[Awaitable[None]] = []
        for number in range(visitors):
            chance = random.Random(f"{seed} {number}")
            tabs.append(_visit(crowd, chance, turns, only))
        for number in range(strangers):
            chance = random.Random(f"stranger {number}")
            tabs.append(_disturb(crowd, chance, deadline))
        await asyncio.gather(*tabs)
    unexpected = {}
    for status, answers in crowd.statuses.items():
        if status not in EXPECTED:
            unexpected[str(status)] = answers
    return {
        "counts": dict(crowd.counts),
        "errors": len(crowd.errors),
        "first_errors": crowd.errors[:5],
        "waits": {kind: _quantiles(waits) for kind, waits in crowd.waits.items()},
        "strangers": {
            "statuses": dict(crowd.statuses),
            "errors": {**crowd.failures, **unexpected},
        },
    }


def _offer_in(page: str) -> dict[str, Any]:
    """The JSON document in the page's HTML."""
    after_begin = page.split('id="offer">')[1]
    document = after_begin.split("</script>")[0]
    return dict(json.loads(document))


async def _visit(crowd: Crowd, chance: random.Random, turns: Iterator[int], only: str) -> None:
    """Make visits one after another while there are turns, each with a random action or the only
    one."""
    for _ in turns:
        visitor = Visitor(crowd, chance)
        if only:
            await crowd.watch(getattr(visitor, only)())
            continue
        (action,) = chance.choices(list(ACTIONS), list(ACTIONS.values()))
        await crowd.watch(visitor.open())
        if action:
            await crowd.watch(getattr(visitor, action)())
        await asyncio.sleep(chance.uniform(0, 0.5))


async def _disturb(crowd: Crowd, chance: random.Random, deadline: float) -> None:
    """Act as one stranger until the deadline, always from the same address."""
    address = f"10.255.255.{chance.randrange(256)}"
    while time.monotonic() < deadline:
        try:
            status = await _annoy(crowd, chance, address)
            crowd.statuses[status] += 1
        except httpx.HTTPError as error:
            crowd.failures[type(error).__name__] += 1
        await asyncio.sleep(PAUSE)


def _quantiles(waits: list[float]) -> dict[str, float]:
    """The median and the 95th percentile of waits in seconds."""
    cuts = statistics.quantiles([*waits, *waits], n=20, method="inclusive")
    return {"p50": round(cuts[9], 3), "p95": round(cuts[18], 3)}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    figures = asyncio.run(crowd_figures(**arguments))
    print(json.dumps(figures))
