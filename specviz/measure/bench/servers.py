"""The lanes against servers of the same pair, which run on this machine and take turns with them.

A server's speed is taken in every way that it can be, since the rival is to be at its best: from
the stream, where each step costs a message; from answers as a whole, as the time of a long one
less that of one with a single token; and from the server's own clock, where it tells it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm

from ...errors import PairError, ServerError
from ...lanes import Lane
from ...pairs.pair import Pair
from ...remote.address import server_address
from ...remote.wire import Server
from ...settings import Settings
from ...sides.watched.pair import recognised
from .ways import Comparison, Way, own_run, own_ways

STREAMED, WHOLE, OWN_CLOCK = "streamed", "whole answers", "by its own clock"


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed answer. rates: tokens per second without the first token, by how it was timed.
    tokens: their number, as the server counts them."""

    text: str
    tokens: int
    rates: dict[str, float]


class RivalServer:
    """A model on a server of OpenAI's completions.

    address: "http://HOST:PORT/v1", with "#MODEL" if it serves several. lane: whether it decodes
    alone or speculates by itself, as its operator says. Raises `ServerError`.
    """

    def __init__(self, address: str, lane: Lane) -> None:
        url, _, model = address.partition("#")
        self._address = server_address(url)
        self._server, self.lane = self._connected(), lane
        self._model = model or self._first_model()
        engine = recognised(self._address, self._model)
        self.who = f"{engine.identity.software} at {self._server.shown}"

    def runs(self, ids: Sequence[int], count: int) -> tuple[dict[str, float], str]:
        """Tokens per second after a prompt, by how it was timed, and the text of `count` tokens."""
        stream = self._streamed(ids, count)
        short, long = self._seconds(ids, 1), self._seconds(ids, count)
        rates = dict(stream.rates)
        if long > short:
            rates[WHOLE] = (count - 1) / (long - short)
        return rates, stream.text

    def _connected(self) -> Server:
        # llama.cpp's server closes a connection some time after a stream, perhaps just when the
        # next request is on its way.
        return Server(self._address)

    def _body(self, ids: Sequence[int], count: int) -> dict[str, Any]:
        greedy = {"temperature": 0.0, "ignore_eos": True}
        return {"model": self._model, "prompt": list(ids), "max_tokens": count, **greedy}

    def _seconds(self, ids: Sequence[int], count: int) -> float:
        return self._connected().post("completions", self._body(ids, count)).seconds

    def _streamed(self, ids: Sequence[int], count: int) -> Stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = self._body(ids, count) | options | {"return_token_ids": True}  # nosec B105
        texts: list[str] = []
        times: list[float] = []
        tokens, first, rates = count, 1, {}
        with self._connected().stream("completions", body) as chunks:
            for chunk in chunks:
                now = time.perf_counter()
                for choice in chunk.get("choices", ()):
                    texts.append(str(choice.get("text", "")))
                    times.append(now)
                    if len(times) == 1:  # a step that speculates may bring several
                        first = len(choice.get("token_ids") or [0])
                tokens = _whole(chunk.get("usage"), "completion_tokens") or tokens
                if (rate := _own_clock(chunk.get("timings"))) is not None:
                    rates[OWN_CLOCK] = rate
        if len(times) < 2 or tokens != count:
            raise ServerError(
                f"{self._server.shown} streamed {tokens if times else 0} tokens instead of "
                f"{count}: it must take prompts of token ids, and ignore_eos."
            )
        if times[-1] > times[0]:
            rates[STREAMED] = (tokens - first) / (times[-1] - times[0])
        return Stream("".join(texts), tokens, rates)

    def _first_model(self) -> str:
        try:
            return str(self._server.get("models")["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise ServerError(self._server.rubbish()) from error


def compare_with_servers(
    alone: Sequence[str],
    speculating: Sequence[str],
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
) -> Comparison:
    """Write every prompt greedily in both lanes and on every server, `repeats` times, in turn.

    alone, speculating: addresses of servers, all of the pair's target; the latter draft by
    themselves. While one works, the others have nothing to do. Raises `SpecvizError`.
    """
    settings = replace(settings, temperature=0.0, ignore_eos=True, chat="off")
    if pair.draft is None or not settings.gamma:
        raise PairError("--server compares a target and a draft: choose such a pair.")
    if settings.max_new_tokens < 2:
        raise PairError("--server counts no first token: use --max-new-tokens 2 or more.")
    lanes: dict[Lane, Sequence[str]] = {"baseline": alone, "speculative": speculating}
    servers = [RivalServer(one, lane) for lane, some in lanes.items() for one in some]
    rates: dict[Way, list[float]] = defaultdict(list)
    parted: dict[str, dict[str, int | None]] = {server.who: {} for server in servers}
    # What is compiled, allocated or read once is not measured.
    for way in own_ways(settings):
        own_run(pair, prompts[0], settings, way)
    for server in servers:
        server.runs(pair.encode(prompts[0], chat="off"), settings.max_new_tokens)
    for prompt in tqdm(repeats * list(prompts), unit="prompt", disable=None, leave=False):
        tokens: list[str] = []
        for way in own_ways(settings):
            rate, tokens = own_run(pair, prompt, settings, way)
            rates[way].append(rate)
        for server in servers:
            ids = pair.encode(prompt, chat="off")
            timed, text = server.runs(ids, settings.max_new_tokens)
            for how, rate in timed.items():
                rates[Way(f"{server.who}, {how}", server.lane, 0, 0)].append(rate)
            parted[server.who][prompt] = parts_at(tokens, text)
    return _comparison(rates, parted, repeats * len(prompts), len(prompts))


def parts_at(tokens: Sequence[str], text: str) -> int | None:
    """The first of these tokens that a text does not go on with, from 0; None if it has all."""
    place = 0
    for index, token in enumerate(tokens):
        if not text.startswith(token, place):
            return index
        place += len(token)
    return None


def _comparison(
    rates: dict[Way, list[float]],
    parted: dict[str, dict[str, int | None]],
    samples: int,
    prompts: int,
) -> Comparison:
    """What was measured; without the ways that could not be timed each time."""
    complete = {way: some for way, some in rates.items() if len(some) == samples}
    places = {
        who: [place for place in some.values() if place is not None] for who, some in parted.items()
    }
    same = {who: prompts - len(some) for who, some in places.items()}
    return Comparison(complete, same, prompts, places)


def _own_clock(timings: Any) -> float | None:
    """llama.cpp's own figure; its clock starts when the first token is there."""
    count, milliseconds = _whole(timings, "predicted_n"), None
    if isinstance(timings, dict):
        milliseconds = timings.get("predicted_ms")
    if not count or count < 2 or not isinstance(milliseconds, int | float) or milliseconds <= 0:
        return None
    return (count - 1) / (milliseconds / 1e3)


def _whole(value: Any, name: str) -> int | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is int else None
