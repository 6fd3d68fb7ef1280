"""The page: a bar with the prompt, a panel with the settings, and the player."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from ..environment import BUILTIN
from ..errors import SettingsError, SpecvizError
from ..report.html import PAGE
from ..settings import Settings
from ..worker.client import ProcessWorker, Worker
from .api import add_api, checked_prompt
from .choices import OTHER, chosen_pair, pair_choices
from .controls import DEFAULTS, MAX_LENGTH, Controls, make_controls, summary_of
from .doctor import Doctor, refusal_html, report_views
from .download import taker
from .experiment import sampling_functions
from .jobs import Run
from .look import RECORDINGS, keep_no_statistics, serve_static_files
from .player import make_player
from .presets import PRESETS, Preset, load_presets
from .queue import Engine, deltas
from .recordings import opener
from .security.errors import Page, answering

VISITORS = 24  # at a time; each holds a thread of the server while its run waits or races


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
    engine = Engine(worker)
    engine.start(pair)
    presets = load_presets(PRESETS)
    tools = (PAGE / "tools.html").read_text("utf-8")
    page = Page(title="specviz", fill_width=True, analytics_enabled=False)
    with page:
        with gr.Row(elem_id="topbar"):
            _static("brand", (PAGE / "brand.html").read_text("utf-8"))
            prompt, run, stop = _prompt(presets)
            buttons, greedy = _quick_buttons(presets)
            _static("tools", tools.replace("@settings", summary_of(DEFAULTS)))
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="panel"):
                controls, report = make_controls(pair)
            player = make_player(_functions(engine, pair), presets, recordings)
        _wire(engine, pair, prompt, run, stop, controls, player)
        examiner = Doctor(doctor or ProcessWorker())
        _wire_doctor(page, engine, examiner, pair, controls, report)
        add_api(engine, examiner, pair, checked_settings)
        _wire_greedy(greedy, controls)
        _wire_address(page, prompt, controls)
        for button, preset in zip(buttons, presets, strict=True):
            _wire_preset(button, preset, prompt, controls)
    return page


def _static(name: str, html: str) -> None:
    gr.HTML(html, elem_id=name, apply_default_css=False, js_on_load=None)


def _functions(engine: Engine, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """What the player may ask of the server."""
    sampling = sampling_functions(engine, pair, checked_settings)
    return [answering(one) for one in (_missed_of(engine), opener(), taker(), *sampling)]


def _missed_of(engine: Engine) -> Callable[[dict[str, Any]], list[str] | None]:
    # A function and not a method, for Gradio marks it; one argument, for Gradio passes one.
    def missed(asked: dict[str, Any]) -> list[str] | None:
        run = str(asked["run"])
        known = not run or engine.job(run) is not None
        return engine.missed(run, int(asked["seq"])) if known else None

    return missed


def _prompt(presets: Sequence[Preset]) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    with gr.Row(elem_id="prompt-row"):
        prompt = gr.Textbox(
            presets[0].prompt,
            label="Prompt",
            show_label=False,
            container=False,
            lines=1,
            max_lines=3,
            max_length=8000,
            placeholder="Write the beginning; both lanes go on from it",
            elem_id="prompt",
        )
        run = gr.Button("Run", variant="primary", elem_id="run")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
    return prompt, run, stop


def _quick_buttons(presets: Sequence[Preset]) -> tuple[list[gr.Button], gr.Button]:
    with gr.Row(elem_id="presets"):
        buttons = [gr.Button(one.name, size="sm", elem_classes="preset") for one in presets]
        return buttons, gr.Button("greedy", size="sm", elem_id="greedy")


def _wire(
    engine: Engine,
    own: str,
    prompt: gr.Textbox,
    run: gr.Button,
    stop: gr.Button,
    controls: Controls,
    player: gr.HTML,
) -> None:
    def start(
        request: gr.Request,
        prompt: str,
        pair: str,
        target: str,
        draft: str,
        weights: str,
        *values: Any,
    ) -> Iterator[str]:
        """Race both lanes on a prompt; yields deltas for the player."""
        asked = dict(zip(DEFAULTS, values, strict=True))
        session = str(request.session_hash)
        naming = (pair, target, draft, weights)
        yield from _started(engine, session, lambda: chosen_pair(*naming, own=own), prompt, asked)

    def halt(request: gr.Request) -> None:
        """Stop both lanes of this visitor's run."""
        engine.stop(str(request.session_hash))

    gr.on(
        [run.click, prompt.submit],
        start,
        [prompt, *controls],
        player,
        show_progress="hidden",
        concurrency_limit=VISITORS,
        concurrency_id="race",
        trigger_mode="multiple",
        api_visibility="private",
    )
    # With no limit it never waits for a place in the queue.
    stop.click(halt, concurrency_limit=None, show_progress="hidden", api_visibility="private")


def _wire_doctor(
    page: gr.Blocks, engine: Engine, doctor: Doctor, own: str, controls: Controls, report: gr.HTML
) -> None:
    """The pairs that fit this machine come first; whichever is chosen is examined at once."""

    def list_pairs() -> Any:
        return gr.update(choices=pair_choices(own, engine.machine))

    def examine(pair: str, target: str, draft: str, weights: str) -> Iterator[str]:
        if pair == own or (pair == OTHER and not target):
            yield ""
            return
        try:
            name = chosen_pair(pair, target, draft, weights, own=own)
        except SpecvizError as error:
            yield refusal_html(str(error))
            return
        yield from report_views(doctor, name)

    page.load(list_pairs, None, controls.pair, show_progress="hidden", api_visibility="private")
    gr.on(
        [
            controls.pair.input,
            controls.target.submit,
            controls.draft.submit,
            controls.weights.input,
        ],
        examine,
        controls.naming(),
        report,
        show_progress="hidden",
        concurrency_id="doctor",
        concurrency_limit=VISITORS,
        trigger_mode="always_last",
        api_visibility="private",
    )


def _started(
    engine: Engine, session: str, pair: Callable[[], str], prompt: str, values: dict[str, Any]
) -> Iterator[str]:
    try:
        settings, name, prompt = checked_settings(values), pair(), checked_prompt(prompt)
    except SpecvizError as error:
        refused = Run(session, "", prompt, Settings())
        refused.error = str(error)
        yield refused.say(over=True)
        return
    yield from deltas(engine, Run(session, name, prompt, settings))


def checked_settings(values: dict[str, Any]) -> Settings:
    """The settings that a visitor asks for. Raises `SettingsError`, also where only the page
    sets a limit: whoever calls its endpoint by hand meets it too."""
    settings = Settings(**values)
    if settings.max_new_tokens > MAX_LENGTH:
        raise SettingsError(f"the length is {settings.max_new_tokens}: use up to {MAX_LENGTH}.")
    return settings


def _wire_preset(button: gr.Button, preset: Preset, prompt: gr.Textbox, controls: Controls) -> None:
    """Fill prompt and settings in the browser: a preset needs no round trip."""
    filled = json.dumps([preset.prompt, *controls.values_of(preset.settings)])
    button.click(
        None,
        None,
        [prompt, *controls.tunable()],
        js=f"() => {filled}",
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )


def _wire_greedy(button: gr.Button, controls: Controls) -> None:
    usual = DEFAULTS["temperature"]
    button.click(
        None,
        controls.temperature,
        controls.temperature,
        js=f"(temperature) => temperature > 0 ? 0 : {usual}",
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )


def _wire_address(page: gr.Blocks, prompt: gr.Textbox, controls: Controls) -> None:
    """Fill the page from its address, and the address from what is then chosen."""
    chosen = [prompt, *controls.tunable()]
    quiet: dict[str, Any] = {
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
    }
    # The page may be ready before its player: the values wait for it.
    page.load(None, chosen, chosen, js=_FILLED, **quiet)
    gr.on([one.change for one in chosen], None, chosen, None, js=_CHANGED, **quiet)


_FILLED = """async (...values) => {
  while (!window.specviz) await new Promise((resume) => setTimeout(resume, 20));
  return window.specviz.filled(values);
}"""
_CHANGED = "(...values) => window.specviz?.changed(values)"
