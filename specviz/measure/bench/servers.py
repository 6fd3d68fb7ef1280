"""The lanes against servers of the same pair, which run on this machine and take turns with them.

A server's speed is measured in every way that it allows, so that it is shown at its best: from the
stream, where each step costs a message; from whole answers, as the time of a long one minus that of
a single token; and by the server's own clock, where it reports it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from ...base.errors import PairError, ServerError
from ...core.lanes import BASELINE, LANES, SPECULATIVE, Lane
from ...core.messages import TextPrompt
from ...core.pair import Pair
from ...core.settings import Settings
from ...core.threads import thread_counts
from ...remote.address import server_address
from ...remote.identity import served_models
from ...remote.wire import Server
from ...runs.tables import rate_line
from ...runs.trace import Trace
from ...sides.watched.watching import recognised
from ..races import race_writer
from ..samples import SPECVIZ, Comparison, Sample, Variant, Writer, Written, by_turns

STREAMED = "streamed"
WHOLE = "whole answers"
OWN_CLOCK = "by its own clock"


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The comparison on `prompts` prompts.

    parted: by server, the index of the first token at which its text differs from the text written
    here, for each prompt where they differ.
    """

    comparison: Comparison
    parted: dict[str, list[int]]
    prompts: int

    def lines(self) -> Iterator[str]:
        """All variants, on how many prompts the texts are the same, and the ratios of the best."""
        comparison = self.comparison
        for variant in sorted(comparison.rates, key=_line_order):
            yield rate_line(str(variant), comparison.spread(variant), 76)
        for server, indices in self.parted.items():
            same = f"{self.prompts - len(indices)}/{self.prompts} prompts"
            if indices:
                numbers = ", ".join(str(index + 1) for index in indices)
                same += f"; the others differ from token {numbers}"
            yield f"  {server} wrote the same text as here on {same}"
        yield "\nbest against best, tokens/s"
        best = comparison.best
        lanes_here = [variant for variant in comparison.rates if variant.source == SPECVIZ]
        yield self._ratio_line(best(lanes_here), best(lanes_here, BASELINE))
        for rivals in self._rivals_by_engine():
            lanes = sorted({variant.lane for variant in rivals})
            for lane in lanes:
                yield self._ratio_line(best(lanes_here, lane), best(rivals, lane))
            if len(lanes) == len(LANES):
                yield self._ratio_line(best(rivals, SPECULATIVE), best(rivals, BASELINE))

    def _rivals_by_engine(self) -> Iterator[list[Variant]]:
        """The variants of all servers, a list for each engine."""
        rivals = [variant for variant in self.comparison.rates if variant.source != SPECVIZ]
        rivals.sort(key=_engine)
        for _, rivals_of_engine in groupby(rivals, key=_engine):
            yield list(rivals_of_engine)

    def _ratio_line(self, variant: Variant, reference: Variant) -> str:
        ratio = self.comparison.ratio(variant, reference)
        return f"  {ratio.shown()} times: {variant} / {reference}"

    def to_dict(self) -> dict[str, Any]:
        """All variants with their spreads, and where texts diverge, ready for JSON."""
        rows = []
        for variant in self.comparison.rates:
            spread = self.comparison.spread(variant)
            row = {
                "who": variant.source,
                "lane": variant.lane,
                "threads": variant.threads,
                "gamma": variant.gamma,
            }
            rows.append(row | asdict(spread))
        return {
            "rows": rows,
            "same_texts": {
                server: self.prompts - len(parted) for server, parted in self.parted.items()
            },
            "parted": self.parted,
            "prompts": self.prompts,
        }


def _line_order(variant: Variant) -> tuple[int, str, int]:
    return LANES.index(variant.lane), variant.source, variant.threads


def _engine(variant: Variant) -> str:
    """The engine's name, the first word of a server's."""
    return variant.source.split()[0]


class RivalServer:
    """A model on a server of OpenAI's completions.

    address: "http://HOST:PORT/v1", with "#MODEL" if the server has several. lane: whether the
    server decodes alone or speculates, as its operator says. Raises `ServerError`.
    """

    def __init__(self, address: str, lane: Lane) -> None:
        url, _, model = address.partition("#")
        self._address = server_address(url)
        self.lane = lane
        self._model = model or next(iter(served_models(self._connected())), "")
        engine = recognised(self._address, self._model)
        self.source = f"{engine.identity.software} at {self._address.shown}"

    def writer(self, pair: Pair, settings: Settings) -> Writer:
        """Write texts on this server, each timed in every way that it allows."""

        def write(prompt: TextPrompt) -> Written:
            ids = pair.encode(prompt, chat=settings.chat)
            count = settings.max_new_tokens
            rates, text = self._streamed(ids, count)
            seconds_of_one = self._answer_seconds(ids, 1)
            seconds = self._answer_seconds(ids, count)
            if seconds > seconds_of_one:
                rates[WHOLE] = (count - 1) / (seconds - seconds_of_one)
            by_variant = {}
            for timing, rate in rates.items():
                variant = Variant(f"{self.source}, {timing}", self.lane)
                by_variant[variant] = rate
            return Written(by_variant, text=text)

        return Writer(self.source, write)

    def _answer_seconds(self, ids: Sequence[int], count: int) -> float:
        """Seconds of a whole answer of `count` tokens."""
        return self._connected().post("completions", self._body(ids, count)).seconds

    def _connected(self) -> Server:
        # llama.cpp's server closes a connection some time after a stream, perhaps while the next
        # request is on its way.
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
        choices: list[tuple[float, dict[str, Any]]] = []  # each with its seconds of arrival
        for seconds, chunk in server.stream("completions", body):
            choices += [(seconds, choice) for choice in chunk.get("choices", ())]
            usage = chunk.get("usage") or usage
            timings = chunk.get("timings") or timings
        tokens = usage.get("completion_tokens") or count
        if not choices:
            tokens = 0
        if len(choices) < 2 or tokens != count:
            raise ServerError(
                f"{server.shown} streamed {tokens} tokens instead of {count}: use a server that "
                "accepts prompts of token ids and ignore_eos."
            )
        rates: dict[str, float] = {}
        milliseconds = timings.get("predicted_ms")
        if milliseconds:
            # llama.cpp's own clock, which starts when the first token is there.
            rates[OWN_CLOCK] = (timings["predicted_n"] - 1) / (milliseconds / 1e3)
        begin, first = choices[0]
        end, _ = choices[-1]
        if end > begin:
            # A step that speculates may yield several tokens.
            first_tokens = len(first.get("token_ids") or [0])
            rates[STREAMED] = (tokens - first_tokens) / (end - begin)
        text = "".join(str(choice.get("text", "")) for _, choice in choices)
        return rates, text


def servers_report(
    pair: Pair, prompts: Sequence[TextPrompt], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Compare with the servers of the options, print all variants and the ratios of the best, and
    return them."""
    print(
        f"greedy, {len(prompts)} prompts, {options.repeats} repeats, {settings.max_new_tokens} "
        "tokens each; all variants take turns on each prompt; prefill does not count\n",
        flush=True,
    )
    report = compare_with_servers(
        options.server, options.server_speculating, pair, prompts, settings, options.repeats
    )
    print(*report.lines(), sep="\n")
    return report.to_dict()


def compare_with_servers(
    alone: Sequence[str],
    speculating: Sequence[str],
    pair: Pair,
    prompts: Sequence[TextPrompt],
    settings: Settings,
    repeats: int,
) -> ServerReport:
    """Write every prompt greedily in both lanes and on every server, `repeats` times, in turns.

    alone, speculating: addresses of servers, all of the pair's target; the latter draft on their
    own. While one writes, the others are idle. Raises `SpecvizError`.
    """
    settings = replace(settings, temperature=0.0, ignore_eos=True)
    if settings.drafter == "none" or not settings.gamma:
        raise PairError("--server compares the target with and without drafts: choose a drafter.")
    if settings.max_new_tokens < 2:
        raise PairError("--server does not time the first token: use --max-new-tokens 2 or more.")
    servers = [RivalServer(address, BASELINE) for address in alone]
    servers += [RivalServer(address, SPECULATIVE) for address in speculating]
    # One lane after the other: between a server's tokens no other lane runs either.
    race = race_writer(pair, settings, mode="sequential")
    writers = [replace(race, threads=threads) for threads in thread_counts()]
    writers += [server.writer(pair, settings) for server in servers]
    samples = list(by_turns(writers, prompts, repeats))
    return ServerReport(
        comparison=Comparison.of(samples),
        parted=parted_texts(samples),
        prompts=len(prompts),
    )


def parted_texts(samples: Sequence[Sample]) -> dict[str, list[int]]:
    """Compare the texts of servers with those of the races on the same prompts: `parted` of a
    `ServerReport`."""
    traces: dict[int, Trace] = {}
    for sample in samples:
        if sample.written.trace is not None:
            traces[sample.prompt] = sample.written.trace
    parted: dict[str, dict[int, int | None]] = defaultdict(dict)  # by server and prompt
    for sample in samples:
        if sample.written.text is not None:
            rounds = traces[sample.prompt].lane(SPECULATIVE)
            tokens = [token.text for r in rounds for token in r.emitted]
            parted[sample.writer.name][sample.prompt] = parts_at(tokens, sample.written.text)
    return {
        server: [index for index in by_prompt.values() if index is not None]
        for server, by_prompt in parted.items()
    }


def parts_at(tokens: Sequence[str], text: str) -> int | None:
    """The index of the first token that the text does not continue with; None if it has all."""
    begin = 0
    for index, token in enumerate(tokens):
        if not text.startswith(token, begin):
            return index
        begin += len(token)
    return None
