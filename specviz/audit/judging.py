"""Is it lossless? Compare texts of the server with the probabilities that it lists, and with texts
of the baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence

from ..base.errors import PairError, ServerError
from ..inspect.equivalence import Outcome
from ..sides.watched.engines import Prompt
from . import greedy, sampled
from .asking import AuditedModel, Ids, Streamed
from .greedy import GreedyText
from .lossless import lossless_verdict
from .paying import Turn
from .plan import CHECKED_TEXTS, Agenda, AuditOptions
from .report import Greedy, Sampled, Verdict
from .sampled import ListedLaw
from .speculating import Counters, counters_between

FAILURES = (PairError, ServerError)
CANDIDATES = 2  # prompts of which one is taken for sampled texts


class TextJudge:
    """Judges the texts of a server, and keeps the results for the verdict.

    law: the listed distribution of short texts; None if there are no lists. law_fault: why there
    are none. greedy, sampled: the results so far.
    """

    def __init__(
        self, options: AuditOptions, server: AuditedModel, baseline: AuditedModel | None
    ) -> None:
        self._options = options
        self._server = server
        self._baseline = baseline
        self.law: ListedLaw | None = None
        self.law_fault = ""
        self.greedy: list[Greedy] = []
        self.sampled: list[Sampled] = []
        self._doubts: list[str] = []

    def choose_law(self, prompts: Sequence[Prompt]) -> int | None:
        """Choose the prompt whose short texts reveal a wrong sampler soonest; returns the number of
        texts needed, None if unknown."""
        best_rank = (math.inf, 0.0)
        needed_for_best: int | None = None
        for prompt in prompts[:CANDIDATES]:
            if isinstance(prompt, str):
                self.law_fault = f"{self._server.shown} reports no token ids"
                return None
            try:
                law = sampled.listed_law(self._server, tuple(prompt), self._options.temperature)
            except FAILURES as error:
                self.law_fault = reason_of(error)
                return None
            needed, caught = sampled.samples_needed(law, self._options.temperature)
            needed = needed or sampled.SIZES[-1]
            rank = (needed, -caught)  # if as many are needed, the law that catches more controls
            if rank < best_rank:
                best_rank = rank
                needed_for_best = needed
                self.law = law
        return needed_for_best

    def judge_greedy(self, turns: Sequence[Turn]) -> None:
        """Judge the texts of the turns."""
        texts, baseline_texts = _greedy_texts(turns)
        rounding = self._rounding([text.prompt for text in texts])
        if self._baseline is not None and texts:
            judge = None if self.law is None else self._server
            self.greedy.append(greedy.compare(texts, baseline_texts, judge, rounding))
        elif self._baseline is not None:
            self._compare_plain_texts(turns)
        if self.law is not None:
            self.greedy.append(greedy.check_own(self._server, texts[:CHECKED_TEXTS], rounding))
        elif self._baseline is None:
            raise PairError(f"{self.law_fault}, and no baseline was named")

    def _rounding(self, prefixes: Sequence[Ids]) -> float:
        """The largest gap of candidates in a tie, in nats: measured if both servers can be
        compared, else the usual one."""
        if self.law is None or self._baseline is None or not prefixes:
            return greedy.ROUNDING
        try:
            return greedy.measured_rounding(self._server, self._baseline, prefixes)
        except FAILURES as error:
            self._doubts.append(f"Rounding was not measured: {reason_of(error)}.")
            return greedy.ROUNDING

    def _compare_plain_texts(self, turns: Sequence[Turn]) -> None:
        """Compare texts without reported ids, character by character."""
        by_prompt: dict[str, tuple[Streamed, Streamed]] = {}
        for turn in turns:
            if isinstance(turn.prompt, str) and turn.baseline_text is not None:
                by_prompt[turn.prompt] = (turn.text, turn.baseline_text)
        texts: list[GreedyText] = []
        baseline_texts: list[GreedyText] = []
        for text, baseline_text in by_prompt.values():
            texts.append(_as_characters(text))
            baseline_texts.append(_as_characters(baseline_text))
        if texts:
            self.greedy.append(greedy.compare(texts, baseline_texts, None, greedy.ROUNDING))

    def judge_samples(self, agenda: Agenda, prompt: Prompt, seconds: float) -> None:
        """Draw short texts, and judge them. prompt: if there is no law, which has its own."""
        if self.law is not None:
            prompt = self.law.prompt
        temperature = self._options.temperature
        seconds_of_drawing = seconds / agenda.sampling_parts(self._options.servers)

        def drawn(model: AuditedModel, temperature: float, seed: int) -> list[tuple[Ids, str]]:
            texts = sampled.draws(model, prompt, temperature, agenda.samples, seed)
            return list(_within(seconds_of_drawing, texts))

        before = self._server.counters()
        texts = drawn(self._server, temperature, 0)
        after = self._server.counters()
        self._doubt_drafts(counters_between(before, after, self._server.name))
        if self.law is not None:
            self._judge_fit([ids for ids, _ in texts], self.law)
        if self._baseline is None:
            return
        baseline_texts = _outcomes(drawn(self._baseline, temperature, sampled.OTHER_SEEDS))
        if self.law is not None:
            control = sampled.simulated_control(self.law, temperature, len(texts))
        else:
            colder = sampled.COLDER * temperature
            wrong = _outcomes(drawn(self._baseline, colder, 2 * sampled.OTHER_SEEDS))
            control = sampled.drawn_control(wrong, baseline_texts, temperature)
        self.sampled.append(sampled.compare_samples(_outcomes(texts), baseline_texts, control))

    def _judge_fit(self, texts: Sequence[Ids], law: ListedLaw) -> None:
        """Compare drawn texts with the listed distribution."""
        ended = sampled.ends_early(texts)
        if ended >= sampled.MANY_EARLY_ENDS:
            raise PairError(
                f"{ended} of {len(texts)} sampled texts ended within {sampled.LENGTH} tokens: "
                "name other --prompts"
            )
        temperature = self._options.temperature
        longest = sampled.best_length(law, temperature, len(texts))
        for length in (1, longest):
            self.sampled.append(sampled.fit(texts, law, temperature, length))

    def _doubt_drafts(self, counters: Counters | None) -> None:
        """Note the doubt if sampled texts were written without drafts: they prove nothing then."""
        if counters is not None and not counters.counted["drafted"]:
            self._doubts.append(
                "The server drafted nothing while it sampled, so its sampled texts say nothing "
                "about its speculation."
            )

    def verdict(self, notes: Sequence[str]) -> Verdict:
        """The answer on the results so far. notes: why something was not judged."""
        note = "; ".join(notes)
        doubt = " ".join(self._doubts)
        return lossless_verdict(self.greedy, self.sampled, note, doubt)


def _greedy_texts(turns: Sequence[Turn]) -> tuple[list[GreedyText], list[GreedyText]]:
    """The texts of the turns after different prompts, with ids, of the server and the baseline."""
    texts: dict[Ids, GreedyText] = {}
    baseline_texts: dict[Ids, GreedyText] = {}
    for turn in turns:
        if isinstance(turn.prompt, str) or not turn.text.ids:
            continue
        prompt = tuple(turn.prompt)
        texts[prompt] = GreedyText(prompt, greedy.known_ids(turn.text.ids))
        if turn.baseline_text is not None:
            ids = greedy.known_ids(turn.baseline_text.ids)
            baseline_texts[prompt] = GreedyText(prompt, ids)
    return list(texts.values()), list(baseline_texts.values())


def _within(seconds: float, texts: Iterator[tuple[Ids, str]]) -> Iterator[tuple[Ids, str]]:
    """The texts that are drawn within `seconds`, and at least a few."""
    begin = time.monotonic()
    for count, text in enumerate(texts, 1):
        yield text
        if count >= sampled.MIN_TEXTS and time.monotonic() - begin > seconds:
            break


def _as_characters(stream: Streamed) -> GreedyText:
    """The text of a stream, with characters instead of tokens."""
    return GreedyText((), tuple(map(ord, stream.text)))


def _outcomes(drawn: Iterable[tuple[Ids, str]]) -> list[Outcome]:
    """The compared parts of drawn texts."""
    return [sampled.outcome_of(ids, text) for ids, text in drawn]


def reason_of(error: BaseException) -> str:
    """An error's sentence, as the end of another one."""
    return str(error).rstrip(".")
