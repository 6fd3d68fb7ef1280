"""The audit itself: the order of its parts, and the report on its measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from ..base.errors import PairError, ServerError, SettingsError
from ..base.version import __version__
from ..inspect.equivalence import Outcome
from ..pairs.prompts import Question as PromptOfKind
from ..pairs.prompts import builtin_prompts, in_turn, prompts_file
from ..sides.watched.engines import Prompt
from . import greedy, sampled
from .advice import Findings, advice
from .asking import AuditedModel, Ids, RequestBudget, Streamed
from .greedy import GreedyText
from .lossless import lossless_verdict
from .paying import MIN_TURNS, Turn, lengths, loads, paying_verdict, speeds_of, take_turns
from .plan import (
    CHECKED_TEXTS,
    PREPARATION,
    SHARE_OF_LENGTHS,
    Agenda,
    AuditOptions,
    Pace,
    agenda_of,
    cut_to,
    plan_of,
)
from .report import AuditReport, Drafting, Greedy, Length, Load, Plan, Sampled, Verdict
from .sampled import ListedLaw
from .speculating import Counters, counters_between, drafting_of, speculating_verdict

MAX_PROMPTS = 8
WARM_TOKENS = 16
CANDIDATES = 2  # prompts of which one is taken for sampled texts
FAILURES = (PairError, ServerError)


class Audit:
    """An audit of one server. `run` measures; `report` reports the measurements so far. ours: the
    audited server. theirs: the baseline, if there is one. budget: counts the requests to both.
    questions: the prompts, one of each kind first.
    """

    def __init__(
        self,
        options: AuditOptions,
        ours: AuditedModel,
        theirs: AuditedModel | None,
        budget: RequestBudget,
        questions: Sequence[PromptOfKind],
    ) -> None:
        self.options = options
        self._ours = ours
        self._theirs = theirs
        self._budget = budget
        self._questions = questions
        self._begin = time.monotonic()
        self._prompts: list[tuple[PromptOfKind, Prompt]] = []
        self._law: ListedLaw | None = None
        self._law_fault = ""
        self._agenda: Agenda | None = None
        self._plan: Plan | None = None
        self._is_loaded: bool | None = None
        self._turns: list[Turn] = []
        self._counters: Counters | None = None
        self._loads: list[Load] = []
        self._lengths: list[Length] = []
        self._greedy: list[Greedy] = []
        self._sampled: list[Sampled] = []
        self._paying_note = ""
        self._lossless_notes: list[str] = []
        self._lossless_doubts: list[str] = []

    def run(self) -> Iterator[str]:
        """Measure; yields a sentence before each part. A failure of a server ends its part of the
        audit, and its sentence becomes the reason why something is unknown."""
        yield f"Identifying the server: at most {PREPARATION} requests."
        self._prepare()
        assert self._plan is not None and self._agenda is not None
        yield from self._plan.sentences
        yield "Streaming texts in turns."
        self._paying_note = self._attempt(self._take_turns)
        # A server that has refused some requests is not sent many at once.
        if self._agenda.levels and not self._paying_note:
            yield "Sending several requests at once."
            self._paying_note = self._attempt(self._measure_loads)
        if self._agenda.lengths and not self._paying_note:
            yield "Streaming after long prompts."
            self._paying_note = self._attempt(self._measure_lengths)
        if self.options.asks("lossless"):
            yield "Judging greedy texts."
            self._note_lossless(self._attempt(self._judge_greedy))
            if self._agenda.samples:
                yield f"Drawing up to {self._agenda.samples} short texts from each server."
                self._note_lossless(self._attempt(self._judge_samples))

    def report(self, *, stopped: bool = False) -> AuditReport:
        """Build the report on the measurements so far. stopped: whether the audit was stopped
        early."""
        drafting: Drafting | None = None
        if self._turns:
            drafting = self._drafting()
        speeds = speeds_of(self._turns)
        verdicts = tuple(self._verdicts(drafting, stopped))
        findings = Findings(
            engine=self._ours.identity.engine,
            model=self._ours.name,
            draft=self.options.draft,
            verdicts=verdicts,
            drafting=drafting,
            speeds=speeds,
            loads=self._loads,
            greedy=self._greedy,
            sampled=self._sampled,
            temperature=self.options.temperature,
        )
        baseline: str | None = None
        baseline_software: str | None = None
        if self._theirs is not None:
            baseline = self._theirs.shown
            baseline_software = self._theirs.identity.software
        return AuditReport(
            server=self._ours.shown,
            model=self._ours.name,
            software=self._ours.identity.software,
            baseline=baseline,
            baseline_software=baseline_software,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            version=__version__,
            seconds=time.monotonic() - self._begin,
            requests=self._budget.used,
            stopped=stopped,
            plan=self._plan,
            verdicts=verdicts,
            drafting=drafting,
            speeds=speeds,
            loads=tuple(self._loads),
            lengths=tuple(self._lengths),
            greedy=tuple(self._greedy),
            sampled=tuple(self._sampled),
            advice=tuple(advice(findings)),
            notes=tuple(self._notes()),
        )

    def _prepare(self) -> None:
        """Ask for one short text of each server, for lists, and make the plan."""
        pace = self._measured_pace()
        # One prompt of each kind, and no more than the turns need.
        for question in self._questions[:MAX_PROMPTS]:
            prompt: Prompt = self._ours.tokenize(question.text) or question.text
            self._prompts.append((question, prompt))
        self._is_loaded = self._ours.says_loaded()
        needed = self._choose_law()
        self._agenda = agenda_of(
            self.options,
            pace,
            needed=needed,
            lists=self._law is not None,
            context=self._ours.identity.context,
        )
        self._plan = plan_of(self.options, self._agenda, pace)
        self._budget.limit = self._budget.used + self._plan.requests

    def _measured_pace(self) -> Pace:
        first = 0.0
        token = 0.0
        for model in filter(None, (self._ours, self._theirs)):
            model.stream("The", WARM_TOKENS)  # warm-up: one-time compilations are not measured
            text = model.stream("Once", WARM_TOKENS)
            first += text.first
            token += text.last / max(1, text.tokens)
        return Pace(first, token)

    def _choose_law(self) -> int | None:
        """Choose the prompt whose short texts reveal a wrong sampler soonest; returns the number of
        texts needed, None if unknown."""
        if not self.options.asks("lossless"):
            return None
        best_rank = math.inf
        needed_for_best: int | None = None
        for _, prompt in self._prompts[:CANDIDATES]:
            if isinstance(prompt, str):
                self._law_fault = f"{self._ours.shown} reports no token ids"
                return None
            try:
                law = sampled.listed_law(self._ours, tuple(prompt), self.options.temperature)
            except FAILURES as error:
                self._law_fault = _reason(error)
                return None
            needed, caught = sampled.samples_needed(law, self.options.temperature)
            needed = needed or sampled.SIZES[-1]
            rank = needed - caught  # of as many texts, those that catch the control more often
            if rank < best_rank:
                best_rank = rank
                needed_for_best = needed
                self._law = law
        return needed_for_best

    def _attempt(self, part: Callable[[], None]) -> str:
        """Measure one part; returns why it ended early, empty if it did not."""
        try:
            part()
        except FAILURES as error:
            return _reason(error)
        return ""

    def _take_turns(self) -> None:
        before = self._ours.counters()
        failure: Exception | None = None
        try:
            self._stream_turns()
        except FAILURES as error:
            failure = error
        # Not after Ctrl-C, which ends everything at once.
        if before is not None and self._turns:
            after = self._ours.counters()
            self._counters = counters_between(before, after, self._ours.name)
        if failure is not None:
            raise failure

    def _stream_turns(self) -> None:
        assert self._agenda is not None
        tokens = self.options.tokens
        turns = self._agenda.turns
        for turn in take_turns(self._ours, self._theirs, self._prompts, turns, tokens):
            self._turns.append(turn)
            if self._is_over() and len(self._turns) >= MIN_TURNS:
                break

    def _measure_loads(self) -> None:
        assert self._agenda is not None
        prompts = [prompt for _, prompt in self._prompts]
        levels = self._agenda.levels
        for load in loads(self._ours, self._theirs, prompts, levels, self.options.tokens):
            self._loads.append(load)
            if self._is_over():
                break

    def _measure_lengths(self) -> None:
        assert self._agenda is not None
        begin = time.monotonic()
        limit = SHARE_OF_LENGTHS * 60.0 * self.options.minutes
        for count in self._agenda.lengths:
            prompt = self._long_prompt(count)
            self._lengths += lengths(
                self._ours, self._theirs, [(count, prompt)], self.options.tokens
            )
            if time.monotonic() - begin > limit:
                break

    def _long_prompt(self, count: int) -> Prompt:
        """A prompt of about `count` tokens with a unique beginning."""
        context = self._ours.identity.context
        if context is not None:
            count = min(count, context - self.options.tokens - 1)
        _, first = self._prompts[count % len(self._prompts)]
        if isinstance(first, str):
            words = f"{count}. {first} "
            characters = 3 * count
            times = 1 + characters // len(words)
            return (words * times)[:characters]
        return cut_to(first, count)

    def _judge_greedy(self) -> None:
        texts, their_texts = self._greedy_texts()
        rounding = self._rounding([text.prompt for text in texts])
        judge: AuditedModel | None = None
        if self._law is not None:
            judge = self._ours
        if self._theirs is not None and texts:
            comparison = greedy.compare(texts, their_texts, judge, rounding)
            self._greedy.append(comparison)
        elif self._theirs is not None:
            self._compare_plain_texts()
        if self._law is not None:
            check = greedy.check_own(self._ours, texts[:CHECKED_TEXTS], rounding)
            self._greedy.append(check)
        elif self._theirs is None:
            raise PairError(f"{self._law_fault}, and no baseline was named")

    def _rounding(self, prefixes: Sequence[Ids]) -> float:
        """The largest gap of candidates in a tie, in nats: measured where both servers can be
        compared, else the usual one."""
        if self._law is None or self._theirs is None or not prefixes:
            return greedy.ROUNDING
        try:
            return greedy.measured_rounding(self._ours, self._theirs, prefixes)
        except FAILURES as error:
            self._lossless_doubts.append(f"Rounding was not measured: {_reason(error)}.")
            return greedy.ROUNDING

    def _greedy_texts(self) -> tuple[list[GreedyText], list[GreedyText]]:
        """The texts of the turns after different prompts, with ids, of both servers."""
        ours: dict[Ids, GreedyText] = {}
        theirs: dict[Ids, GreedyText] = {}
        for turn in self._turns:
            if isinstance(turn.prompt, str) or not turn.ours.ids:
                continue
            prompt = tuple(turn.prompt)
            ours[prompt] = GreedyText(prompt, greedy.known_ids(turn.ours.ids))
            if turn.theirs is not None:
                theirs[prompt] = GreedyText(prompt, greedy.known_ids(turn.theirs.ids))
        return list(ours.values()), list(theirs.values())

    def _compare_plain_texts(self) -> None:
        """Compare texts without reported ids, character by character."""
        by_prompt: dict[str, tuple[Streamed, Streamed]] = {}
        for turn in self._turns:
            if isinstance(turn.prompt, str) and turn.theirs is not None:
                by_prompt[turn.prompt] = (turn.ours, turn.theirs)
        ours: list[GreedyText] = []
        theirs: list[GreedyText] = []
        for our_stream, their_stream in by_prompt.values():
            ours.append(_as_characters(our_stream))
            theirs.append(_as_characters(their_stream))
        if ours:
            self._greedy.append(greedy.compare(ours, theirs, None, greedy.ROUNDING))

    def _judge_samples(self) -> None:
        assert self._agenda is not None
        _, prompt = self._prompts[0]
        if self._law is not None:
            prompt = self._law.prompt
        temperature = self.options.temperature
        parts = self._agenda.sampling_parts(self.options.servers)
        seconds = self._seconds_left() / parts
        before = self._ours.counters()
        drawn = self._drawn(self._ours, prompt, temperature, 0, seconds)
        ours = list(drawn)
        after = self._ours.counters()
        self._doubt_drafts(counters_between(before, after, self._ours.name))
        ids = [drawn_ids for drawn_ids, _ in ours]
        if self._law is not None:
            ended = sampled.ends_early(ids)
            if ended >= sampled.MANY_ENDS:
                raise PairError(
                    f"{ended} of {len(ids)} sampled texts ended within {sampled.LENGTH} tokens: "
                    "name other --prompts"
                )
            longest = sampled.best_length(self._law, temperature, len(ids))
            for length in (1, longest):
                test = sampled.fit(ids, self._law, temperature, length)
                self._sampled.append(test)
        if self._theirs is not None:
            self._compare_samples(self._theirs, prompt, ours, seconds)

    def _compare_samples(
        self,
        theirs: AuditedModel,
        prompt: Prompt,
        ours: list[tuple[Ids, str]],
        seconds: float,
    ) -> None:
        """Compare our sampled texts with the baseline's. seconds: for each drawing."""
        temperature = self.options.temperature
        seed = sampled.OTHER_SEEDS
        baseline = _outcomes(self._drawn(theirs, prompt, temperature, seed, seconds))
        if self._law is not None:
            control = sampled.simulated_control(self._law, temperature, len(ours))
        else:
            colder = sampled.COLDER * temperature
            wrong = _outcomes(self._drawn(theirs, prompt, colder, 2 * seed, seconds))
            control = sampled.drawn_control(wrong, baseline, temperature)
        our_outcomes = _outcomes(ours)
        self._sampled.append(sampled.compare_samples(our_outcomes, baseline, control))

    def _drawn(
        self, model: AuditedModel, prompt: Prompt, temperature: float, seed: int, seconds: float
    ) -> Iterator[tuple[Ids, str]]:
        """Draw sampled texts, as many as are planned and fit into `seconds`; at least a few."""
        assert self._agenda is not None
        begin = time.monotonic()
        texts = sampled.draws(model, prompt, temperature, self._agenda.samples, seed)
        for count, text in enumerate(texts, 1):
            yield text
            if count >= sampled.MIN_TEXTS and time.monotonic() - begin > seconds:
                break

    def _doubt_drafts(self, counters: Counters | None) -> None:
        """Note the doubt if sampled texts were written without drafts: they prove nothing then."""
        if counters is not None and not counters.counted["drafted"]:
            self._lossless_doubts.append(
                "The server drafted nothing while it sampled, so its sampled texts say nothing "
                "about its speculation."
            )

    def _is_over(self) -> bool:
        """Whether the time budget is used up."""
        return self._seconds_left() < 0.0

    def _seconds_left(self) -> float:
        end = self._begin + 60.0 * self.options.minutes
        return end - time.monotonic()

    def _drafting(self) -> Drafting:
        streams = [turn.ours for turn in self._turns]
        return drafting_of(streams, self._counters, self._is_loaded)

    def _verdicts(self, drafting: Drafting | None, stopped: bool) -> Iterator[Verdict]:
        paying_note = self._paying_note
        lossless_notes = list(self._lossless_notes)
        if stopped:
            because = "the audit was stopped"
            paying_note = paying_note or because
            lossless_notes.append(because)
        if self.options.asks("speculating"):
            if drafting is None:
                reason = paying_note or "nothing was streamed"
                sentence = f"Unknown, because {reason}."
                yield Verdict("speculating", "cannot be told", sentence)
            else:
                yield speculating_verdict(self._ours, drafting, self._counters)
        if self.options.asks("paying"):
            speeds = speeds_of(self._turns)
            yield paying_verdict(speeds, self._loads, self._lengths, paying_note)
        if self.options.asks("lossless"):
            note = "; ".join(lossless_notes)
            doubt = " ".join(self._lossless_doubts)
            yield lossless_verdict(self._greedy, self._sampled, note, doubt)

    def _notes(self) -> Iterator[str]:
        yield (
            "Times are those of requests: they include the network, the server's queue and its "
            "other users."
        )
        if self._law_fault:
            yield f"No lists of log-probabilities were used: {self._law_fault}."
        if any(isinstance(prompt, str) for _, prompt in self._prompts):
            yield "The server reports no token ids, so texts are compared by their characters."

    def _note_lossless(self, reason: str) -> None:
        if reason:
            self._lossless_notes.append(reason)


def connected(options: AuditOptions) -> Audit:
    """Identify both servers, and make the audit. Raises `ServerError`, `PairError` and
    `SettingsError` for servers that cannot be audited at all, and `PromptError` for the prompts."""
    budget = RequestBudget(PREPARATION)
    ours = AuditedModel(options.server, budget, options.answer_seconds)
    theirs: AuditedModel | None = None
    if options.baseline is not None:
        address = options.baseline
        if "#" not in address:
            address += f"#{ours.name}"
        theirs = AuditedModel(address, budget, options.answer_seconds)
        if theirs.identity.speculates:
            raise PairError(
                f"{theirs.shown} speculates too, but a baseline serves the target alone: start it "
                "without speculation."
            )
    return Audit(options, ours, theirs, budget, _prompts_of(options, ours.name))


def _as_characters(stream: Streamed) -> GreedyText:
    """The text of a stream, with a character in place of each token."""
    return GreedyText((), tuple(map(ord, stream.text)))


def _outcomes(drawn: Iterable[tuple[Ids, str]]) -> list[Outcome]:
    """The compared parts of drawn texts."""
    return [sampled.outcome_of(ids, text) for ids, text in drawn]


def _reason(error: BaseException) -> str:
    """An error's sentence, as the end of another one."""
    return str(error).rstrip(".")


def _prompts_of(options: AuditOptions, model: str) -> tuple[PromptOfKind, ...]:
    """The prompts of a file, or those that suit the model, one of each kind first."""
    if options.prompts is not None:
        return in_turn(prompts_file(options.prompts))
    return in_turn(builtin_prompts(model))


def audit_server(
    server: str,
    *,
    baseline: str | None = None,
    on_progress: Callable[[str], None] | None = None,
    **options: Any,
) -> AuditReport:
    """Audit a server that speculates: is it speculating, is it paying, is it lossless?

    server, baseline: addresses as "http://HOST:8000/v1#MODEL"; the baseline serves the same target
    without speculation. on_progress: called with a sentence before each part. options: fields of
    `AuditOptions`. Ctrl-C ends it at once, with a report on the measurements so far. Raises
    `SpecvizError` for wrong options and for servers that cannot be audited at all.
    """
    try:
        asked = AuditOptions(server, baseline=baseline, **options)
    except TypeError as error:
        raise SettingsError(
            f"this is not an option of an audit ({error}): use the fields of AuditOptions."
        ) from error
    audit = connected(asked)
    stopped = False
    try:
        for sentence in audit.run():
            if on_progress is not None:
                on_progress(sentence)
    except KeyboardInterrupt:
        stopped = True
    return audit.report(stopped=stopped)
