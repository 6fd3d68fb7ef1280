"""The lanes against servers of the same pair, which run on this machine and take turns with them.

A server's speed is taken in every way that it can be, since the rival is to be at its best: from
the stream, where each step costs a message; from answers as a whole, as the time of a long one
less that of one with a single token; and from the server's own clock, where it tells it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import truediv
from typing import Any

from tqdm import tqdm

from ...base.errors import PairError, ServerError
from ...core.lanes import BASELINE, LANE_LABELS, LANES, SPECULATIVE, Lane
from ...core.messages import TextPrompt
from ...core.pair import Pair
from ...core.settings import Settings
from ...core.threads import thread_counts
from ...remote.address import server_address
from ...remote.identity import served_models
from ...remote.wire import Server
from ...runs.result import baseline, speculate
from ...runs.tables import rate_line
from ...runs.uncertainty import Spread, spread
from ...sides.watched.watching import recognised
from .turns import all_with

HERE = "specviz"
STREAMED = "streamed"
WHOLE = "whole answers"
OWN_CLOCK = "by its own clock"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a text. who: `HERE`, or a server and how it was timed. threads: 0 where a
    server does not tell. gamma: drafted tokens per round, 0 for the target alone and where it is
    not told."""

    who: str
    lane: Lane
    threads: int
    gamma: int

    def __str__(self) -> str:
        drafts = f", drafts of {self.gamma}" if self.gamma else ""
        plural = "s" if self.threads > 1 else ""
        threads = f", {self.threads} thread{plural}" if self.threads else ""
        return f"{LANE_LABELS[self.lane]}, {self.who}{threads}{drafts}"


@dataclass(frozen=True, slots=True)
class ServerComparison:
    """What was measured on `prompts` prompts.

    rates: tokens per second without prefill, by way; the samples of all ways are in one order.
    parted: by engine, at which token its text parts from the one that was written here, from 0, for
    each prompt to which it wrote another.
    """

    rates: dict[Way, list[float]]
    parted: dict[str, list[int]]
    prompts: int

    def best(self, whos: Sequence[str], lane: Lane | None = None) -> Way:
        """The way with the highest median among these names, of one lane or of both."""
        ways = [way for way in self.rates if way.who in whos and lane in (None, way.lane)]
        return max(ways, key=lambda way: spread(self.rates[way]).median)

    def ratio(self, way: Way, reference: Way) -> Spread:
        """The rate of a way over that of the reference, sample by sample."""
        return spread(map(truediv, self.rates[way], self.rates[reference]))

    def lines(self) -> Iterator[str]:
        """All ways, on how many prompts the texts are the same, and the ratios of the best."""
        order = sorted(self.rates, key=lambda way: (LANES.index(way.lane), way.who, way.threads))
        for way in order:
            yield rate_line(str(way), spread(self.rates[way]), 76)
        for who, indices in self.parted.items():
            same = f"{self.prompts - len(indices)}/{self.prompts} prompts"
            if indices:
                numbers = ", ".join(str(index + 1) for index in indices)
                same += f"; the others part at token {numbers}"
            yield f"  {who} wrote the text that was written here on {same}"
        yield "\nbest against best, tokens/s"
        yield self._ratio_line(self.best([HERE]), self.best([HERE], BASELINE))
        for whos in self._whos_by_engine():
            lanes = {way.lane for way in self.rates if way.who in whos}
            for lane in sorted(lanes):
                yield self._ratio_line(self.best([HERE], lane), self.best(whos, lane))
            if lanes == set(LANES):
                yield self._ratio_line(self.best(whos, SPECULATIVE), self.best(whos, BASELINE))

    def _whos_by_engine(self) -> list[list[str]]:
        """Who wrote besides this program: those of one engine together."""
        whos = sorted({way.who for way in self.rates if way.who != HERE})
        return [list(group) for _, group in groupby(whos, key=lambda who: who.split()[0])]

    def _ratio_line(self, way: Way, reference: Way) -> str:
        return f"  {self.ratio(way, reference).shown()} times: {way} / {reference}"

    def to_dict(self) -> dict[str, Any]:
        """All ways with their spreads, and where texts part, ready for JSON."""
        return {
            "rows": [asdict(way) | asdict(spread(rates)) for way, rates in self.rates.items()],
            "same_texts": {who: self.prompts - len(parted) for who, parted in self.parted.items()},
            "parted": self.parted,
            "prompts": self.prompts,
        }


class RivalServer:
    """A model on a server of OpenAI's completions.

    address: "http://HOST:PORT/v1", with "#MODEL" if it serves several. lane: whether it decodes
    alone or speculates by itself, as its operator says. Raises `ServerError`.
    """

    def __init__(self, address: str, lane: Lane) -> None:
        url, _, model = address.partition("#")
        self._address = server_address(url)
        self.lane = lane
        self._model = model or next(iter(served_models(self._connected())), "")
        engine = recognised(self._address, self._model)
        self.who = f"{engine.identity.software} at {self._address.shown}"

    def runs(self, ids: Sequence[int], count: int) -> tuple[dict[str, float], str]:
        """Tokens per second after a prompt, by how it was timed, and the text of `count` tokens."""
        rates, text = self._streamed(ids, count)
        seconds_of_one = self._answer_seconds(ids, 1)
        seconds = self._answer_seconds(ids, count)
        if seconds > seconds_of_one:
            rates[WHOLE] = (count - 1) / (seconds - seconds_of_one)
        return rates, text

    def _answer_seconds(self, ids: Sequence[int], count: int) -> float:
        """Seconds of an answer of `count` tokens as a whole."""
        return self._connected().post("completions", self._body(ids, count)).seconds

    def _connected(self) -> Server:
        # llama.cpp's server closes a connection some time after a stream, perhaps just when the
        # next request is on its way.
        return Server(self._address)

    def _body(self, ids: Sequence[int], count: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": list(ids),
            "max_tokens": count,
            "temperature": 0.0,
            "ignore_eos": True,
        }

    def _streamed(self, ids: Sequence[int], count: int) -> tuple[dict[str, float], str]:
        """Tokens per second without the first token, and the text of a streamed answer."""
        body = self._body(ids, count)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        body["return_token_ids"] = True  # nosec B105
        server = self._connected()
        usage: dict[str, Any] = {}
        timings: dict[str, Any] = {}
        pieces: list[tuple[float, dict[str, Any]]] = []  # when it came, and what
        for seconds, chunk in server.stream("completions", body):
            pieces += [(seconds, choice) for choice in chunk.get("choices", ())]
            usage = chunk.get("usage") or usage
            timings = chunk.get("timings") or timings
        tokens = usage.get("completion_tokens") or count
        if len(pieces) < 2 or tokens != count:
            raise ServerError(
                f"{server.shown} streamed {tokens if pieces else 0} tokens instead of "
                f"{count}: it must take prompts of token ids, and ignore_eos."
            )
        rates: dict[str, float] = {}
        milliseconds = timings.get("predicted_ms")
        if milliseconds:
            # llama.cpp's own clock, which starts when the first token is there.
            rates[OWN_CLOCK] = (timings["predicted_n"] - 1) / (milliseconds / 1e3)
        begin, first = pieces[0]
        end, _ = pieces[-1]
        if end > begin:
            # A step that speculates may bring several tokens.
            first_tokens = len(first.get("token_ids") or [0])
            rates[STREAMED] = (tokens - first_tokens) / (end - begin)
        return rates, "".join(str(piece.get("text", "")) for _, piece in pieces)


def servers_report(
    pair: Pair, prompts: Sequence[TextPrompt], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Compare with the servers of the options, print all ways and the ratios of the best, and
    return them."""
    print(
        f"greedy, {len(prompts)} prompts, {options.repeats} repeats, {settings.max_new_tokens} "
        "tokens each; all ways take turns on each prompt; prefill is not counted\n",
        flush=True,
    )
    comparison = compare_with_servers(
        options.server, options.server_speculating, pair, prompts, settings, options.repeats
    )
    print(*comparison.lines(), sep="\n")
    return comparison.to_dict()


def compare_with_servers(
    alone: Sequence[str],
    speculating: Sequence[str],
    pair: Pair,
    prompts: Sequence[TextPrompt],
    settings: Settings,
    repeats: int,
) -> ServerComparison:
    """Write every prompt greedily in both lanes and on every server, `repeats` times, in turn.

    alone, speculating: addresses of servers, all of the pair's target; the latter draft by
    themselves. While one works, the others have nothing to do. Raises `SpecvizError`.
    """
    settings = replace(settings, temperature=0.0, ignore_eos=True)
    if settings.drafter == "none" or not settings.gamma:
        raise PairError("--server compares the target with drafts and without: choose a drafter.")
    if settings.max_new_tokens < 2:
        raise PairError("--server counts no first token: use --max-new-tokens 2 or more.")
    servers = [RivalServer(address, BASELINE) for address in alone]
    servers += [RivalServer(address, SPECULATIVE) for address in speculating]
    gammas = {BASELINE: 0, SPECULATIVE: settings.gamma}
    ways = [Way(HERE, lane, threads, gammas[lane]) for threads in thread_counts() for lane in LANES]
    rates: dict[Way, list[float]] = defaultdict(list)
    parted: dict[str, dict[TextPrompt, int | None]] = {server.who: {} for server in servers}
    # What is compiled, allocated or read once is not measured.
    _turn(pair, prompts[0], settings, ways, servers)
    for prompt in tqdm(repeats * list(prompts), unit="prompt", disable=None, leave=False):
        rates_of_turn, parted_of_turn = _turn(pair, prompt, settings, ways, servers)
        for way, rate in rates_of_turn.items():
            rates[way].append(rate)
        for who, index in parted_of_turn.items():
            parted[who][prompt] = index
    # Ways that could not be timed each time are left out.
    turns = repeats * len(prompts)
    return ServerComparison(
        rates={way: samples for way, samples in rates.items() if len(samples) == turns},
        parted={
            who: [index for index in by_prompt.values() if index is not None]
            for who, by_prompt in parted.items()
        },
        prompts=len(prompts),
    )


def _turn(
    pair: Pair, prompt: TextPrompt, settings: Settings, ways: list[Way], servers: list[RivalServer]
) -> tuple[dict[Way, float], dict[str, int | None]]:
    """The rates of all ways on a prompt, and where each server's text parts from ours."""
    rates: dict[Way, float] = {}
    parted: dict[str, int | None] = {}
    for way in ways:
        rates[way], tokens = own_run(pair, prompt, settings, way)
    ids = pair.encode(prompt, chat=settings.chat)
    for server in servers:
        rates_of_server, text = server.runs(ids, settings.max_new_tokens)
        for timing, rate in rates_of_server.items():
            way = Way(f"{server.who}, {timing}", server.lane, threads=0, gamma=0)
            rates[way] = rate
        parted[server.who] = parts_at(tokens, text)
    return rates, parted


def own_run(
    pair: Pair, prompt: TextPrompt, settings: Settings, way: Way
) -> tuple[float, list[str]]:
    """A lane's tokens per second without prefill, on its own clock, and the texts of its tokens."""
    decode = baseline if way.lane == BASELINE else speculate
    with all_with(way.threads):
        rounds = list(decode(pair, prompt, settings))
    tokens = [token.text for r in rounds for token in r.emitted]
    return len(tokens) / rounds[-1].clock, tokens


def parts_at(tokens: Sequence[str], text: str) -> int | None:
    """The first of these tokens that a text does not go on with, from 0; None if it has all."""
    begin = 0
    for index, token in enumerate(tokens):
        if not text.startswith(token, begin):
            return index
        begin += len(token)
    return None
