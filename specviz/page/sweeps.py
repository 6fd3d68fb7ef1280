"""Sweeps on the page: the offer of the view "Choose", the limits of a visitor's request, and the
sweep as a job in the queue, which runs in pieces and keeps its results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any
from uuid import uuid4

from ..base.environment import BUILTIN, on_zerogpu
from ..base.errors import PromptError, SettingsError, SpecvizError, shown
from ..base.variables import SWEEP, SWEEP_SECONDS
from ..core.registry import drafter_kind, swept_drafters
from ..core.settings import Settings
from ..measure.sweep.export import sweep_csv
from ..measure.sweep.figures import TITLES, figure_specs
from ..measure.sweep.types import SWEPT, Plan, Row, SweepProgress, SweepRequest, SweepResult
from ..pairs.prompts import MAX_KIND_LENGTH, OF_A_SWEEP, PromptOfKind, builtin_prompts, kinds_of
from ..runs.palette import PALETTE
from ..runs.recording import MAX_PROMPTS
from ..runs.vocabulary import POLICIES
from ..worker.tasks import SweepCheckpoint, SweepTask, Task
from .choices import requested_pair
from .controls import MAX_CHARACTERS, MAX_LENGTH, checked_prompt
from .delivery import submit_polled
from .failures import PageQuestion
from .jobs import Job
from .queue import RunQueue

GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
TEMPERATURES = (0.0, 0.3, 0.5, 0.7, 1.0)
SECONDS = (5, 15, 30, 60, 180, 600, 1800)
LENGTHS = (16, 32, 64, 128, 256)
MAX_LISTED = 100  # values of a list
MAX_SENT = 512 * 2**10  # bytes of a visitor's prompts, which come back with the request

OFF = "Sweeps are switched off here: use `python -m specviz sweep` on your own machine."
RESTARTED = "The server is being restarted, so this sweep ended early; its results are kept."


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one sweep of the page. rows: configurations. seconds: of decoding."""

    rows: int
    prompts: int
    seconds: float

    @classmethod
    def here(cls) -> Bounds:
        """Return this page's limits, which are smaller where strangers share it. Raises
        `SettingsError`."""
        limit = SWEEP_SECONDS.read()
        if os.environ.get("SPACE_ID"):
            return cls(rows=40, prompts=24, seconds=limit or 120.0)
        return cls(rows=120, prompts=MAX_PROMPTS, seconds=limit or 600)


def sweeps_allowed() -> bool:
    """Whether the operator lets visitors sweep. With a GPU that is lent for one call, each piece
    would be charged as a call, and times would come from different machines."""
    return SWEEP.read() and not on_zerogpu()


def choose_config(page_pair: str = BUILTIN, pairs: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the view's configuration for the browser; None without sweeps. page_pair: the pair
    that the page was started with. pairs: all listed pairs.
    """
    if not sweeps_allowed():
        return None
    bounds = Bounds.here()
    usual = SweepRequest(())
    kinds = kinds_of(builtin_prompts(page_pair))
    kinds_of_others = {}
    for pair in pairs:
        suited = kinds_of(builtin_prompts(pair))
        if suited != kinds:
            kinds_of_others[pair] = suited
    seconds = [limit for limit in SECONDS if limit <= bounds.seconds]
    if not seconds:
        seconds = [int(bounds.seconds)]
    usual_seconds = seconds[0]
    for limit in seconds:
        if limit <= 60:
            usual_seconds = max(usual_seconds, limit)
    return {
        "kinds": kinds,
        "kindsOf": kinds_of_others,
        "drafters": {name: drafter_kind(name).choice for name in swept_drafters()},
        "policies": {name: words["choice"] for name, words in POLICIES.items()},
        "gammas": GAMMAS,
        "temperatures": TEMPERATURES,
        "seconds": seconds,
        "lengths": [length for length in LENGTHS if length <= MAX_LENGTH],
        "usual": {
            **{name: getattr(usual, name) for name in SWEPT},
            "seconds": usual_seconds,
            "length": usual.base.max_new_tokens,
        },
        "mostRows": bounds.rows,
        "mostPrompts": bounds.prompts,
        "mostFile": OF_A_SWEEP.bytes,
    }


def sweep_questions(queue: RunQueue, page_pair: str) -> list[PageQuestion]:
    """The question that begins a sweep. page_pair: the pair that the page was started with."""

    def begin_sweep(request: dict[str, Any]) -> dict[str, Any]:
        pair = requested_pair(dict(request["naming"]), page_pair=page_pair)
        sweep = sweep_of(pair, asked_request(request, pair))
        return submit_polled(queue, sweep)

    return [begin_sweep]


def sweep_of(pair: str, request: SweepRequest) -> SweepJob:
    """Make a new sweep. Raises `SpecvizError` where sweeps are not allowed."""
    if not sweeps_allowed():
        raise SpecvizError(OFF)
    # The visitor's runs have another session, so they do not end the sweep.
    return SweepJob(f"sweep-{uuid4().hex}", pair, request)


def asked_request(fields: dict[str, Any], pair: str = BUILTIN) -> SweepRequest:
    """Check the sweep that a visitor asks for against the page's limits. Its prompts are texts, or
    pairs of a kind and a text; without any, the built-in prompts that suit the pair are used, of
    the requested kinds if there are any. Lists may be texts with spaces between values. Raises
    `SpecvizError`, also for a value of a wrong type."""
    bounds = Bounds.here()
    prompts = _asked_prompts(fields, pair)
    length = _whole("length", _number("length", fields["length"]))
    seconds = _number("seconds", fields["seconds"])
    if not 2 <= length <= MAX_LENGTH:
        raise SettingsError(f"the length is {length:g}: use 2 to {MAX_LENGTH} tokens.")
    if not 1 <= seconds <= bounds.seconds:
        raise SettingsError(f"the time is {seconds:g} s: use 1 to {bounds.seconds:g}.")
    gammas = _numbers("gammas", fields["gammas"])
    request = SweepRequest(
        prompts=prompts[: bounds.prompts],
        drafters=tuple(_names("drafters", fields["drafters"])),
        gammas=tuple(_whole("gammas", gamma) for gamma in gammas),
        policies=tuple(_names("policies", fields["policies"])),
        temperatures=tuple(_numbers("temperatures", fields["temperatures"])),
        seconds=seconds,
        base=Settings(max_new_tokens=length, ignore_eos=True),
    )
    rows = len(request.configurations())
    if rows > bounds.rows:
        raise SettingsError(f"these are {rows} rows: sweep {bounds.rows} or fewer here.")
    return request


def _asked_prompts(fields: dict[str, Any], pair: str) -> tuple[PromptOfKind, ...]:
    """The visitor's own prompts, or else the built-in ones of the requested kinds."""
    own_prompts = fields.get("prompts")
    if own_prompts not in (None, []):
        if not isinstance(own_prompts, list):
            raise PromptError(f"the prompts are {shown(own_prompts)}: use a list of strings.")
        return tuple(_visitor_prompt(prompt) for prompt in own_prompts[:MAX_PROMPTS])
    kinds = _names("kinds", fields.get("kinds") or [])
    suited = builtin_prompts(pair)
    of_kinds = tuple(prompt for prompt in suited if prompt.kind in kinds)
    return of_kinds or suited


def taken_prompts(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a visitor's file from the reading process's answer: the prompts that a
    sweep here uses, their number by kind, and the number left out. Raises `PromptError`."""
    prompts = []
    for kind, text in contents["prompts"]:
        prompts.append(PromptOfKind(kind[:MAX_KIND_LENGTH], text))
    longest = max(len(prompt.text) for prompt in prompts)
    if longest > MAX_CHARACTERS:
        raise PromptError(
            f"a prompt has {longest} characters: use up to {MAX_CHARACTERS} here, or sweep with "
            "`python -m specviz sweep`."
        )
    used: list[PromptOfKind] = []
    size = 0  # bytes
    for prompt in prompts[: Bounds.here().prompts]:
        size += len(prompt.text.encode("utf-8", "replace"))
        if size > MAX_SENT:
            break
        used.append(prompt)
    unused = len(prompts) - len(used)
    return {
        "prompts": [[prompt.kind, prompt.text] for prompt in used],
        "kinds": kinds_of(tuple(used)),
        "left_out": unused + int(contents["left_out"]),
    }


def _visitor_prompt(value: Any) -> PromptOfKind:
    if isinstance(value, list) and len(value) == 2:
        kind, text = value
    else:
        kind = "prompts"
        text = value
    if not isinstance(kind, str) or not isinstance(text, str):
        raise PromptError(f"a prompt is {shown(value)}: use a string.")
    return PromptOfKind(kind[:MAX_KIND_LENGTH], checked_prompt(text))


def _listed(name: str, value: object) -> list[Any]:
    """The values in a list, in a text with spaces between them, or a single number."""
    if isinstance(value, str):
        return value.split()[:MAX_LISTED]
    if isinstance(value, list):
        return value[:MAX_LISTED]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    raise SettingsError(f"{name} is {shown(value)}: use a list, or a string with spaces.")


def _names(name: str, value: object) -> list[str]:
    names = _listed(name, value)
    for entry in names:
        if not isinstance(entry, str):
            raise SettingsError(f"{name} has {shown(entry)}: use strings.")
    return names


def _numbers(name: str, value: object) -> list[float]:
    numbers = [_as_number(entry) for entry in _listed(name, value)]
    known = [number for number in numbers if number is not None and isfinite(number)]
    if len(known) < len(numbers):
        shown_value = str(value)[:40]
        raise SettingsError(
            f"{shown_value!r} are not numbers for {name}: use numbers such as '1 2 5'."
        )
    return known


def _number(name: str, value: object) -> float:
    number = _as_number(value)
    if number is None:
        raise SettingsError(f"{name} is {shown(value)}: use a number, such as 60.")
    return number


def _as_number(value: object) -> float | None:
    """A number, or a text of one; None for anything else."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    return None


def _whole(name: str, number: float) -> int:
    if not isfinite(number) or number != int(number):
        raise SettingsError(f"{name} has {number:g}: use whole numbers, such as 1, 2 and 5.")
    return int(number)


class SweepJob(Job):
    """A sweep, which runs a few pieces at a time. plan, progress, result: the newest of each."""

    max_unfinished = 3  # each makes every run wait for one turn of it
    max_of_client = 2
    crowded = (
        "The limit of sweeps at a time is reached: try again in a few minutes, or sweep on your "
        "own machine with `python -m specviz sweep`."
    )

    def __init__(self, session: str, pair: str, request: SweepRequest) -> None:
        super().__init__(session, SweepTask(pair, request))
        self.plan: Plan | None = None
        self.progress: SweepProgress | None = None
        self.result: SweepResult | None = None
        self._result_seq = -1  # the number of `result` among the results
        self._rows: dict[str, tuple[Row, int]] = {}  # by key, with the number of its result
        self._checkpoint: SweepCheckpoint | None = None

    def _store(self, result: Plan | SweepProgress | SweepCheckpoint) -> None:
        if isinstance(result, Plan):
            self.plan = result
            self._keep_rows(result.rows)
        elif isinstance(result, SweepProgress):
            self.progress = result
        elif isinstance(result, SweepCheckpoint):  # it comes after each piece, with all rows
            self._checkpoint = result
            self.result = result.result
            self._result_seq = self.next_seq
            self._keep_rows(result.result.rows)

    def next_task(self) -> Task | None:
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.done or not isinstance(self.task, SweepTask):
            return None
        return replace(self.task, state=checkpoint.state)

    def finish(self) -> None:
        is_stopped = self.stopping.is_set() or bool(self.ending.error)
        if self.next_task() is not None and not is_stopped:
            self.ending.remark = RESTARTED  # nothing else can end a sweep between two turns
        self._checkpoint = None  # its state is of no use any more
        super().finish()

    def has_result(self) -> bool:
        return self.result is not None

    def results_from(self, seq: int, next_seq: int, *, over: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"progress": self.progress and asdict(self.progress)}
        if self.plan is not None and seq <= 0:
            names = ("kinds", "pieces", "seconds", "now")
            fields |= {name: getattr(self.plan, name) for name in names}
        rows = []
        for key, (row, row_seq) in list(self._rows.items()):
            if row_seq >= seq or over:
                rows.append({"key": key, **asdict(row)})
        fields["rows"] = rows
        if self.result is not None and (self._result_seq >= seq or over):
            fields |= _shown_result(self.result, complete=over)
        return fields

    def _keep_rows(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            key = row.configuration.key
            known, _ = self._rows.get(key, (None, 0))
            if row != known:
                self._rows[key] = row, self.next_seq


def _shown_result(result: SweepResult, *, complete: bool) -> dict[str, Any]:
    """The results for the browser. complete: also with the result in the form for programs."""
    full = result.to_dict()
    names = ("recommendations", "machine", "link", "spent", "stopped")
    shown = {name: full[name] for name in names}
    shown["figures"] = {theme: _titled_figures(result, theme) for theme in PALETTE}
    if complete:
        shown["whole"] = full
        shown["csv"] = sweep_csv(result)
    return shown


def _titled_figures(result: SweepResult, theme: str) -> dict[str, Any]:
    titled = {}
    for name, spec in figure_specs(result, theme).items():
        titled[name] = {**spec, "title": TITLES[name]}
    return titled
