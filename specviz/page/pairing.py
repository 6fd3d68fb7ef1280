"""The controls that choose a pair: what they list, the doctor's report, and the drafters that it
offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from ..errors import SpecvizError
from .choices import OTHER, chosen_pair, pair_choices
from .controls import Controls, drafter_choices
from .doctor import Doctor, refusal_html, report_views
from .look import IN_BROWSER, PRIVATE, VISITORS
from .queue import RunQueue


def connect_pairs(page: gr.Blocks, runs: RunQueue, own: str, controls: Controls) -> None:
    """When the page loads, list the pairs again: by then the memory of this machine is known."""

    def list_pairs() -> Any:
        return gr.update(choices=pair_choices(own, runs.machine))

    page.load(list_pairs, None, controls.naming[0], **PRIVATE)


def _offering(offered: Sequence[str], drafter: str) -> Any:
    """The control of the drafter with those that a pair offers; it moves to the pair's default if
    the visitor's choice is not among them."""
    moved: dict[str, Any] = {} if drafter in offered else {"value": offered[0]}
    return gr.update(choices=drafter_choices(offered), **moved)


def connect_drafters(controls: Controls) -> None:
    """The control of the drafter offers what the pair can use, in the browser, without a request;
    for models that a visitor names, once the doctor has looked at them."""
    pair, drafter = controls.naming[0], controls.settings["drafter"]
    for one, what in ((pair, "paired"), (drafter, "drafted")):
        js = f"(...values) => window.specviz?.{what}(...values) ?? {{ __type__: 'update' }}"
        one.change(None, [pair, drafter], drafter, js=js, **IN_BROWSER)


def connect_doctor(
    doctor: Doctor, own: str, asked: gr.Button, controls: Controls, report: gr.HTML
) -> None:
    """Examine a pair as soon as a visitor chooses it, or when `asked` is pressed. own: the pair
    that the page was started with."""

    def examine(
        pair: str, target: str, draft: str, weights: str, drafter: str
    ) -> Iterator[tuple[str, Any]]:
        if pair == own or (pair == OTHER and not target):
            yield "", gr.skip()
            return
        try:
            name = chosen_pair(pair, target, draft, weights, own=own)
        except SpecvizError as error:
            yield refusal_html(str(error)), gr.skip()
            return
        for view in report_views(doctor, name):
            yield view, _offering(doctor.offers.of(name), drafter)

    pair, target, draft, weights = controls.naming
    gr.on(
        [pair.input, target.submit, draft.submit, weights.input, asked.click],
        examine,
        [*controls.naming, controls.settings["drafter"]],
        [report, controls.settings["drafter"]],
        concurrency_id="doctor",
        concurrency_limit=VISITORS,
        trigger_mode="always_last",
        **PRIVATE,
    )
