"""The audit itself: the order of its parts, and the report on its measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from ..base.errors import PairError, SettingsError
from ..base.version import __version__
from ..pairs.prompts import PromptOfKind, builtin_prompts, in_turn, prompts_file
from ..sides.watched.engines import Prompt
from .advice import Findings, advice
from .asking import AuditedModel, RequestBudget
from .judging import FAILURES, TextJudge, reason_of
from .paying import MIN_TURNS, Turn, lengths, loads, paying_verdict, speeds_of, take_turns
from .plan import (
    PREPARATION,
    SHARE_OF_LENGTHS,
    Agenda,
    AuditOptions,
    Pace,
    agenda_of,
    cut_to,
    plan_report,
)
from .report import AuditReport, Drafting, Length, Load, PlanReport, Verdict
from .speculating import Counters, counters_between, drafting_of, speculating_verdict

MAX_PROMPTS = 8
WARM_TOKENS = 16


class Audit:
    """An audit of one server. `run` measures; `report` reports the measurements so far.

    server: the audited model. baseline: the same target without speculation, if one is named.
    budget: counts the requests to both. prompts: one of each kind first.
    """

    def __init__(
        self,
        options: AuditOptions,
        server: AuditedModel,
        baseline: AuditedModel | None,
        budget: RequestBudget,
        prompts: Sequence[PromptOfKind],
    ) -> None:
        self.options = options
        self._server = server
        self._baseline = baseline
        self._budget = budget
        # Kinds alternate, so the first prompts have most of them.
        self._prompts_of_kinds = prompts[:MAX_PROMPTS]
        self._begin = time.monotonic()
        self._prompts: list[tuple[PromptOfKind, Prompt]] = []
        self._plan: PlanReport | None = None
        self._is_loaded: bool | None = None
        self._turns: list[Turn] = []
        self._counters: Counters | None = None
        self._loads: list[Load] = []
        self._lengths: list[Length] = []
        self._speed_note = ""  # why speeds were not all measured
        self._judge = TextJudge(options, server, baseline)
        self._judge_notes: list[str] = []  # why texts were not all judged

    def run(self) -> Iterator[str]:
        """Measure; yields a sentence before each part. A failure of a server ends its part of the
        audit, and its sentence becomes the reason why something is unknown."""
        yield f"Identifying the server: at most {PREPARATION} requests."
        agenda, self._plan = self._prepare()
        yield from self._plan.sentences
        yield "Streaming texts in turns."
        self._speed_note = _failure_of(lambda: self._take_turns(agenda.turns))
        # A server that has refused some requests is not sent many at once.
        if agenda.levels and not self._speed_note:
            yield "Sending several requests at once."
            self._speed_note = _failure_of(lambda: self._measure_loads(agenda.levels))
        if agenda.lengths and not self._speed_note:
            yield "Streaming after long prompts."
            self._speed_note = _failure_of(lambda: self._measure_lengths(agenda.lengths))
        if self.options.asks("lossless"):
            yield "Judging greedy texts."
            self._note_unjudged(_failure_of(self._judge_greedy))
            if agenda.samples:
                yield f"Drawing up to {agenda.samples} short texts from each server."
                self._note_unjudged(_failure_of(lambda: self._judge_samples(agenda)))

    def report(self, *, stopped: bool = False) -> AuditReport:
        """Build the report on the measurements so far. stopped: whether the audit was stopped
        early."""
        drafting: Drafting | None = None
        if self._turns:
            texts = [turn.text for turn in self._turns]
            drafting = drafting_of(texts, self._counters, self._is_loaded)
        speeds = speeds_of(self._turns)
        verdicts = tuple(self._verdicts(drafting, stopped))
        findings = Findings(
            engine=self._server.identity.engine,
            model=self._server.name,
            draft=self.options.draft,
            verdicts=verdicts,
            drafting=drafting,
            speeds=speeds,
            loads=self._loads,
            greedy=self._judge.greedy,
            sampled=self._judge.sampled,
            temperature=self.options.temperature,
        )
        baseline: str | None = None
        baseline_software: str | None = None
        if self._baseline is not None:
            baseline = self._baseline.shown
            baseline_software = self._baseline.identity.software
        return AuditReport(
            server=self._server.shown,
            model=self._server.name,
            software=self._server.identity.software,
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
            greedy=tuple(self._judge.greedy),
            sampled=tuple(self._judge.sampled),
            advice=tuple(advice(findings)),
            notes=tuple(self._notes()),
        )

    def _prepare(self) -> tuple[Agenda, PlanReport]:
        """Ask each server for one short text, and for lists; plan the rest, and allow the requests
        that it needs."""
        pace = self._measured_pace()
        for prompt in self._prompts_of_kinds:
            ids_or_text: Prompt = self._server.tokenize(prompt.text) or prompt.text
            self._prompts.append((prompt, ids_or_text))
        self._is_loaded = self._server.says_loaded()
        needed: int | None = None
        if self.options.asks("lossless"):
            needed = self._judge.choose_law([prompt for _, prompt in self._prompts])
        agenda = agenda_of(
            self.options,
            pace,
            needed=needed,
            lists=self._judge.law is not None,
            context=self._server.identity.context,
        )
        plan = plan_report(self.options, agenda, pace)
        self._budget.limit = self._budget.used + plan.requests
        return agenda, plan

    def _measured_pace(self) -> Pace:
        first = 0.0
        token = 0.0
        for model in filter(None, (self._server, self._baseline)):
            model.stream("The", WARM_TOKENS)  # warm-up: one-time compilations are not measured
            text = model.stream("Once", WARM_TOKENS)
            first += text.first
            token += text.last / max(1, text.tokens)
        return Pace(first, token)

    def _take_turns(self, turns: int) -> None:
        before = self._server.counters()
        failure: Exception | None = None
        try:
            self._stream_turns(turns)
        except FAILURES as error:
            failure = error
        # Not after Ctrl-C, which ends everything at once.
        if before is not None and self._turns:
            after = self._server.counters()
            self._counters = counters_between(before, after, self._server.name)
        if failure is not None:
            raise failure

    def _stream_turns(self, turns: int) -> None:
        tokens = self.options.tokens
        for turn in take_turns(self._server, self._baseline, self._prompts, turns, tokens):
            self._turns.append(turn)
            if self._seconds_left() < 0.0 and len(self._turns) >= MIN_TURNS:
                break

    def _measure_loads(self, levels: Sequence[int]) -> None:
        prompts = [prompt for _, prompt in self._prompts]
        for load in loads(self._server, self._baseline, prompts, levels, self.options.tokens):
            self._loads.append(load)
            if self._seconds_left() < 0.0:
                break

    def _measure_lengths(self, counts: Sequence[int]) -> None:
        begin = time.monotonic()
        limit = SHARE_OF_LENGTHS * 60.0 * self.options.minutes
        for count in counts:
            prompts = [(count, self._long_prompt(count))]
            self._lengths += lengths(self._server, self._baseline, prompts, self.options.tokens)
            if time.monotonic() - begin > limit:
                break

    def _long_prompt(self, count: int) -> Prompt:
        """A prompt of about `count` tokens with a unique beginning."""
        context = self._server.identity.context
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
        self._judge.judge_greedy(self._turns)

    def _judge_samples(self, agenda: Agenda) -> None:
        _, prompt = self._prompts[0]
        self._judge.judge_samples(agenda, prompt, self._seconds_left())

    def _seconds_left(self) -> float:
        """The rest of the time budget; below 0 if it is used up."""
        end = self._begin + 60.0 * self.options.minutes
        return end - time.monotonic()

    def _verdicts(self, drafting: Drafting | None, stopped: bool) -> Iterator[Verdict]:
        speed_note = self._speed_note
        judge_notes = list(self._judge_notes)
        if stopped:
            because = "the audit was stopped"
            speed_note = speed_note or because
            judge_notes.append(because)
        if self.options.asks("speculating"):
            if drafting is None:
                reason = speed_note or "nothing was streamed"
                sentence = f"Unknown, because {reason}."
                yield Verdict("speculating", "cannot be told", sentence)
            else:
                yield speculating_verdict(self._server, drafting, self._counters)
        if self.options.asks("paying"):
            speeds = speeds_of(self._turns)
            yield paying_verdict(speeds, self._loads, self._lengths, speed_note)
        if self.options.asks("lossless"):
            yield self._judge.verdict(judge_notes)

    def _notes(self) -> Iterator[str]:
        yield (
            "Times are those of requests: they include the network, the server's queue and its "
            "other users."
        )
        if self._judge.law_fault:
            yield f"No lists of log-probabilities were used: {self._judge.law_fault}."
        if any(isinstance(prompt, str) for _, prompt in self._prompts):
            yield "The server reports no token ids, so texts are compared by their characters."

    def _note_unjudged(self, reason: str) -> None:
        if reason:
            self._judge_notes.append(reason)


def _failure_of(part: Callable[[], None]) -> str:
    """Measure one part; returns why it ended early, empty if it did not."""
    try:
        part()
    except FAILURES as error:
        return reason_of(error)
    return ""


def connected(options: AuditOptions) -> Audit:
    """Identify both servers, and make the audit. Raises `ServerError`, `PairError` and
    `SettingsError` for servers that cannot be audited at all, and `PromptError` for the prompts."""
    budget = RequestBudget(PREPARATION)
    server = AuditedModel(options.server, budget, options.answer_seconds)
    baseline: AuditedModel | None = None
    if options.baseline is not None:
        address = options.baseline
        if "#" not in address:
            address += f"#{server.name}"
        baseline = AuditedModel(address, budget, options.answer_seconds)
        if baseline.identity.speculates:
            raise PairError(
                f"{baseline.shown} speculates too, but a baseline serves the target alone: start "
                "it without speculation."
            )
    return Audit(options, server, baseline, budget, _prompts_of(options, server.name))


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
