"""The doctor on the page: it examines a pair once it is chosen, beside the queue of runs. With the
controls that choose a pair: what they list, its report, and the drafters that the pair offers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from typing import Any, cast

import gradio as gr

from ..errors import SpecvizError
from ..pairs.memory import shown_bytes
from ..pairs.table import download_bytes, fetch_command, missing_files, named_pair
from ..worker.client import Worker, results_of
from ..worker.loading import pair_and_options
from ..worker.tasks import ExamineTask
from .choices import OTHER, Offers, chosen_pair, pair_choices
from .controls import Controls, drafter_choices
from .files import after
from .look import IN_BROWSER, PRIVATE, VISITORS
from .queue import RunQueue

MARKS = {"good": "✓", "warning": "!", "stop": "✕"}
READING = "Reading configs and tokenizers; no weights are fetched."
IDLE = 120.0  # seconds without a question after which its process ends


class Doctor:
    """Examines pairs one at a time, in a worker of its own: a race need not wait for it.

    offers: what it has learnt of the pairs' drafters.
    """

    def __init__(self, worker: Worker, offers: Offers | None = None) -> None:
        self._worker = worker
        self.offers = offers or Offers()
        self._lock = threading.Lock()
        self._idle: threading.Timer | None = None

    def examine(self, pair: str) -> dict[str, Any]:
        """The report about a pair. Raises `SpecvizError`."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            *_, report = results_of(self._worker, ExamineTask(pair))
            self.offers.learn(pair, report.get("drafters", ()))
            self._idle = after(IDLE, self._close)
        return cast(dict[str, Any], report)

    def _close(self) -> None:
        with self._lock:
            self._worker.close()


def report_html(report: dict[str, Any]) -> str:
    """A report of the doctor as an HTML list, the worst findings first."""
    levels = list(reversed(MARKS))
    findings = sorted(report["findings"], key=lambda one: levels.index(one["level"]))
    rows = "".join(
        f'<li class="{one["level"]}"><i aria-label="{one["level"]}">{MARKS[one["level"]]}</i>'
        f"<span><b>{escape(one['topic'])}</b> {escape(one['sentence'])}</span></li>"
        for one in findings
    )
    summary = f'<p class="{report["verdict"]}">{escape(report["summary"])}</p>'
    return f"{summary}<ul>{rows}</ul>"


def _unfetched_html(pair: str) -> str:
    """What is said of a pair whose files must be fetched before anything can be read of them; empty
    if they are here."""
    row = named_pair(pair)
    if row is None or not missing_files(row):
        return ""
    size = shown_bytes(download_bytes(row))
    return (
        f'<p class="warning">Not on this machine yet: {size} to download.</p>'
        '<p class="sv-reading">Run does it, if the hub answers. Whoever runs this page does it '
        f"before with <code>{fetch_command(row)}</code>.</p>"
    )


def connect_pairs(page: gr.Blocks, runs: RunQueue, own: str, controls: Controls) -> None:
    """When the page loads, list the pairs again: by then the memory of this machine is known.

    The control of the drafter offers what the pair can use, in the browser, without a request; for
    models that a visitor names, once the doctor has looked at them.
    """

    def list_pairs() -> Any:
        return gr.update(choices=pair_choices(own, runs.machine))

    pair, drafter = controls.naming[0], controls.settings["drafter"]
    page.load(list_pairs, None, pair, **PRIVATE)
    for one, what in ((pair, "paired"), (drafter, "drafted")):
        js = f"(...values) => window.specviz?.{what}(...values) ?? {{ __type__: 'update' }}"
        one.change(None, [pair, drafter], drafter, js=js, **IN_BROWSER)


def _offering(offered: Sequence[str], drafter: str | None) -> Any:
    """The control of the drafter with those that a pair offers; it moves to the pair's default
    unless `drafter` is among them."""
    moved: dict[str, Any] = {} if drafter in offered else {"value": offered[0]}
    return gr.update(choices=drafter_choices(offered), **moved)


def connect_doctor(
    doctor: Doctor, own: str, asked: gr.Button, controls: Controls, report: gr.HTML
) -> None:
    """Examine a pair as soon as a visitor chooses it, or when `asked` is pressed. Models that a
    visitor names begin with their own drafter. own: the pair that the page was started with."""

    def examine(
        is_chosen: bool, pair: str, target: str, draft: str, weights: str, drafter: str, last: str
    ) -> Iterator[tuple[str, Any, str]]:
        if pair == own or (pair == OTHER and not target):
            # The answer about a pair that was chosen before may have come meanwhile.
            yield "", _offering(doctor.offers.of(pair), drafter), ""
            return
        offered = gr.skip()
        try:
            name = chosen_pair(pair, target, draft, weights, own=own)
            models, _ = pair_and_options(name)
            offered = _offering(doctor.offers.of(name), drafter)
            yield f'<p class="sv-reading">{READING}</p>', offered, last
            report = _unfetched_html(models) or report_html(doctor.examine(name))
            kept = None if is_chosen and pair == OTHER and models != last else drafter
            yield report, _offering(doctor.offers.of(name), kept), models
        except SpecvizError as error:
            yield f'<p class="stop">{escape(str(error))}</p>', offered, last

    # The models examined last; a `gr.State` would keep a connection open for each visitor.
    last = gr.Textbox("", visible=False)
    pair, target, draft, weights = controls.naming
    by_hand = [pair.input, target.submit, draft.submit, weights.input]
    for is_chosen, events in ((True, by_hand), (False, [asked.click])):
        gr.on(
            events,
            partial(examine, is_chosen),
            [*controls.naming, controls.settings["drafter"], last],
            [report, controls.settings["drafter"], last],
            concurrency_id="doctor",
            concurrency_limit=VISITORS,
            trigger_mode="always_last",
            **PRIVATE,
        )
