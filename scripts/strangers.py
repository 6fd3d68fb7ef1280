"""Hostile clients beside a load test: runs that nobody reads, new sessions, malformed requests, and
files that cost a parser dear.

    python -m scripts.strangers http://127.0.0.1:7860 --strangers 6 --seconds 60

It prints one JSON object: how often the page answered with each status, and what it should not have
answered.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import time
from collections import Counter
from typing import Any

import httpx

PAUSE = 0.05  # seconds between two requests of a stranger
EXPECTED = {200, 400, 413, 429, 503}
BOMB = gzip.compress(b"[" + b"[]," * 5_500_000 + b"[]]")
FILE = "/files/trace"


class Stranger:
    """One address that sends what the page never sends."""

    def __init__(self, client: httpx.AsyncClient, player: int, chance: random.Random) -> None:
        self.client, self.player, self.chance = client, player, chance
        self.headers = {"X-Forwarded-For": f"10.255.255.{chance.randrange(256)}"}

    async def annoy(self) -> int:
        """Send something; the status of the answer."""
        unread: dict[str, Any] = {"prompt": "Once upon a time", "max_new_tokens": 512}
        name = f"{self.chance.randrange(2**40):x}"
        question: dict[str, Any] = {
            "component_id": self.player,
            "session_hash": name,
            "fn_name": "missed",
        }
        event: dict[str, Any] = {"fn_index": 0, "session_hash": name}
        asked: list[tuple[str, Any]] = [
            ("/gradio_api/call/v2/generate", unread),
            ("/gradio_api/queue/join", {**event, "data": []}),
            ("/gradio_api/queue/join", {**event, "data": [["x"] * 1000]}),
            ("/gradio_api/component_server", {**question, "data": {"seq": name}}),
            (FILE, BOMB),
        ]
        path, body = self.chance.choice(asked)
        if path == FILE:
            kind = {"Content-Type": "application/octet-stream"}
            answer = await self.client.post(path, content=BOMB, headers=self.headers | kind)
        else:
            answer = await self.client.post(path, json=body, headers=self.headers)
        return answer.status_code


async def strangers_figures(url: str, strangers: int, seconds: float) -> dict[str, Any]:
    """Annoy the page for some seconds; the counts of its answers by status, and all others."""
    statuses: Counter[int] = Counter()
    errors: Counter[str] = Counter()
    deadline = time.monotonic() + seconds

    async def annoy(stranger: Stranger) -> None:
        while time.monotonic() < deadline:
            try:
                statuses[await stranger.annoy()] += 1
            except httpx.HTTPError as error:
                errors[type(error).__name__] += 1
            await asyncio.sleep(PAUSE)

    async with httpx.AsyncClient(base_url=url, timeout=120.0) as client:
        config = (await client.get("/config")).json()
        parts = config["components"]
        player = next(one["id"] for one in parts if one["props"].get("elem_id") == "player")
        chances = [random.Random(f"stranger {number}") for number in range(strangers)]
        await asyncio.gather(*(annoy(Stranger(client, player, chance)) for chance in chances))
    wrong = {str(status): many for status, many in statuses.items() if status not in EXPECTED}
    return {"statuses": dict(statuses), "errors": {**errors, **wrong}}


def main() -> None:
    """Run the strangers of the command line and print what they got."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--strangers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    figures = strangers_figures(options.url, options.strangers, options.seconds)
    print(json.dumps(asyncio.run(figures)))


if __name__ == "__main__":
    main()
