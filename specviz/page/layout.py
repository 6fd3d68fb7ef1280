"""The page: a bar with the prompt, a panel with the settings, and the player."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from ..environment import BUILTIN
from ..errors import SpecvizError
from ..runs.html import PAGE
from ..settings import Settings
from ..worker.client import ProcessWorker, Worker
from .api import add_api
from .choices import Offers, chosen_pair
from .controls import (
    DEFAULTS,
    MOST_CHARACTERS,
    Controls,
    checked_others,
    checked_prompt,
    checked_settings,
    compared_with,
    defaults_of,
    make_controls,
    summary_of,
)
from .delivery import delivery_functions, delta_of, deltas
from .doctor import Doctor, connect_doctor, connect_pairs
from .files import FileReader
from .jobs import Run
from .look import (
    IN_BROWSER,
    PRIVATE,
    RECORDINGS,
    VISITORS,
    keep_no_statistics,
    serve_static_files,
)
from .player import Preset, make_player, presets_of
from .questions import question_functions
from .queue import RunQueue
from .security.blocks import Page, answering
from .sweeps import choosing_functions

FEW_PRESETS = 3  # that stand beside the prompt


class Bar(NamedTuple):
    """The components above the panel and the player.

    presets: one button for each preset; the panel has those that the bar has no room for. adopt: a
    hidden button that the player presses, which sets the controls to those of the run that is
    shown. examine: another, pressed when the address named the pair.
    """

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    presets: list[gr.Button]
    adopt: gr.Button
    examine: gr.Button


def build_page(
    worker: Worker,
    *,
    pair: str = BUILTIN,
    recordings: Path = RECORDINGS,
    doctor: Worker | None = None,
) -> gr.Blocks:
    """The whole page. `worker` decodes for it, `doctor` examines pairs; `pair` is loaded at once.

    A preset's recording is the file of its name in `recordings`, such as easy.json.gz.
    """
    keep_no_statistics()
    serve_static_files(recordings)
    runs = RunQueue(worker)
    runs.start(pair)
    examiner = Doctor(doctor or ProcessWorker())
    presets = presets_of(pair)
    page = Page(title="specviz", fill_width=True, analytics_enabled=False)
    page.runs, page.reader = runs, FileReader()
    with page:
        with gr.Row(elem_id="topbar"):
            bar = _bar(presets, pair)
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="panel"):
                with gr.Row(elem_id="more-presets"):
                    bar.presets.extend(_preset_buttons(presets[FEW_PRESETS:]))
                controls, report = make_controls(pair)
            functions = (
                *delivery_functions(runs),
                *question_functions(runs, pair),
                *choosing_functions(runs, pair),
            )
            player = make_player([*map(answering, functions)], presets, recordings, pair)
        _connect_run(runs, examiner.offers, pair, bar, controls, player)
        connect_pairs(page, runs, pair, controls)
        connect_doctor(examiner, pair, bar.examine, controls, report)
        page.programs = add_api(runs, examiner, pair)
        _connect_buttons(bar, presets, pair, controls)
        _connect_address(page, bar, controls)
    return page


def _bar(presets: Sequence[Preset], pair: str) -> Bar:
    _static("brand", (PAGE / "brand.html").read_text("utf-8"))
    with gr.Row(elem_id="prompt-row"):
        prompt = gr.Textbox(
            presets[0].prompt,
            label="Prompt",
            show_label=False,
            container=False,
            lines=1,
            max_lines=3,
            max_length=MOST_CHARACTERS,
            placeholder="Write the beginning; both lanes go on from it",
            elem_id="prompt",
        )
        gr.Button("‹|›", elem_id="signs")  # shown where the prompt holds signs of a template
        run = gr.Button("Run", variant="primary", elem_id="run")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
    with gr.Row(elem_id="presets"):
        buttons = _preset_buttons(presets[:FEW_PRESETS])
        adopt = gr.Button("As shown", elem_id="adopt")
        examine = gr.Button("Examine", elem_id="examine")
    tools = (PAGE / "tools.html").read_text("utf-8")
    _static("tools", tools.replace("@settings", summary_of(defaults_of(pair))))
    return Bar(prompt, run, stop, buttons, adopt, examine)


def _preset_buttons(presets: Sequence[Preset]) -> list[gr.Button]:
    return [gr.Button(one.name, size="sm", elem_classes="preset") for one in presets]


def _static(name: str, html: str) -> None:
    gr.HTML(html, elem_id=name, apply_default_css=False, js_on_load=None)


def _connect_run(
    runs: RunQueue, offers: Offers, own: str, bar: Bar, controls: Controls, player: gr.HTML
) -> None:
    asked = [bar.prompt, *controls.naming, controls.lanes]

    def start(request: gr.Request, prompt: str, *chosen: Any) -> Iterator[str]:
        """Race all lanes on a prompt; yields deltas for the player."""
        session, (*naming, compare) = str(request.session_hash), chosen[:5]
        try:
            settings = checked_settings(dict(zip(DEFAULTS, chosen[5:], strict=True)))
            name, prompt = chosen_pair(*naming, own=own), checked_prompt(prompt)
            lanes = checked_others(settings, compared_with(settings, compare, offers.of(name)))
        except SpecvizError as error:
            refused = Run(session, "", prompt, Settings())
            refused.refuse(str(error))
            yield delta_of(refused.state(""))
            return
        yield from deltas(runs, Run(session, name, prompt, settings, lanes))

    def halt(request: gr.Request) -> None:
        """Stop both lanes of this visitor's run."""
        runs.stop(str(request.session_hash))

    gr.on(
        [bar.run.click, bar.prompt.submit],
        start,
        [*asked, *controls.settings.values()],
        player,
        concurrency_limit=VISITORS,
        concurrency_id="race",
        trigger_mode="multiple",
        **PRIVATE,
    )
    # Without a limit it never waits for other events.
    bar.stop.click(halt, concurrency_limit=None, **PRIVATE)


def _connect_buttons(bar: Bar, presets: Sequence[Preset], pair: str, controls: Controls) -> None:
    """Fill prompt and settings in the browser, without a request."""
    filled = [bar.prompt, *controls.settings.values()]
    for button, preset in zip(bar.presets, presets, strict=True):
        settings = preset.settings_on(pair)
        values = json.dumps([preset.prompt, *settings.values()])
        button.click(None, None, filled, js=f"() => {values}", **IN_BROWSER)


def _connect_address(page: gr.Blocks, bar: Bar, controls: Controls) -> None:
    """Fill the page from its address or from the run that is shown, and the address from what is
    then chosen."""
    chosen = [bar.prompt, *controls.settings.values(), *controls.naming, controls.lanes]
    # The page may be ready before its player: the values wait for it.
    filled = page.load(None, chosen, chosen, js=_FILLED, **IN_BROWSER)
    filled.then(None, None, None, js="() => window.specviz.opened()", **IN_BROWSER)
    gr.on([one.change for one in chosen], None, chosen, None, js=_CHANGED, **IN_BROWSER)
    bar.adopt.click(None, chosen, chosen, js=_ADOPTED, **IN_BROWSER)
    temperature = controls.settings["temperature"]
    controls.lanes.input(
        None, [controls.lanes, temperature], temperature, js=_COMPARED, **IN_BROWSER
    )


_FILLED = """async (...values) => {
  while (!window.specviz) await new Promise((resume) => setTimeout(resume, 20));
  return window.specviz.filled(values);
}"""
_COMPARED = "(lanes, temperature) => window.specviz.compared(lanes, temperature)"
_ADOPTED = "(...values) => window.specviz.adopted(values)"
_CHANGED = "(...values) => window.specviz?.changed(values)"
