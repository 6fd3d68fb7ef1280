"""The settings panel: one Gradio control per setting, each with its explanation."""

from __future__ import annotations

from typing import Any, NamedTuple

import gradio as gr

from .choices import OTHER, pair_choices

MAX_LENGTH = 512
DEFAULTS: dict[str, Any] = {
    "drafter": "model",
    "gamma_policy": "fixed",
    "gamma": 5,
    "temperature": 0.7,
    "top_k": 0,
    "top_p": 1.0,
    "max_new_tokens": 128,
    "seed": 1,
    "chat": "auto",
}
CHOICES: dict[str, tuple[tuple[str, str], ...]] = {
    "drafter": (
        ("Draft model", "model"),
        ("n-grams", "ngram"),
        ("Early exit", "early-exit"),
        ("None", "none"),
    ),
    "gamma_policy": (("Fixed", "fixed"), ("Heuristic", "heuristic"), ("Optimal", "optimal")),
    "chat": (("If tuned for it", "auto"), ("On", "on"), ("Off", "off")),
}
"""What the page's controls offer by name, as (label, value)."""
LIMITS: dict[str, tuple[float, float]] = {
    "gamma": (1, 16),
    "temperature": (0, 2),
    "top_k": (0, 200),
    "top_p": (0.05, 1),
    "max_new_tokens": (1, MAX_LENGTH),
    "seed": (0, 2**53 - 1),  # the largest that a browser counts to
}
"""The least and the most that the page's controls offer."""


def summary_of(settings: dict[str, Any]) -> str:
    """The settings that matter most, as the page's JavaScript words them too."""
    heat = f"T {settings['temperature']:g}" if settings["temperature"] else "greedy"
    return f"γ {settings['gamma']} · {heat} · {settings['max_new_tokens']} tokens"


class Controls(NamedTuple):
    """The panel's components, in the order in which the run's handler takes them."""

    pair: gr.Dropdown
    target: gr.Textbox
    draft: gr.Textbox
    weights: gr.Radio
    drafter: gr.Radio
    policy: gr.Radio
    gamma: gr.Slider
    temperature: gr.Slider
    top_k: gr.Slider
    top_p: gr.Slider
    length: gr.Slider
    seed: gr.Number
    chat: gr.Radio

    def naming(self) -> list[Any]:
        """What a pair is chosen with."""
        return list(self[:4])

    def tunable(self) -> list[Any]:
        """A control for each of `DEFAULTS`: what a preset may set."""
        return list(self[4:])

    def values_of(self, settings: dict[str, Any]) -> list[Any]:
        """The values of `tunable()` under these settings and otherwise the page's defaults."""
        return [{**DEFAULTS, **settings}[name] for name in DEFAULTS]


def make_controls(pair: str) -> tuple[Controls, gr.HTML]:
    """The panel's components, inside the current layout, and where the doctor's report goes."""
    naming, report = _naming(pair)
    drafter = _radio("drafter", "Drafter", "Where guesses come from; only the first needs a draft.")
    policy = _radio("gamma_policy", "γ policy", "Fixed, or adapted up to γ after each round.")
    gamma = gr.Slider(
        *LIMITS["gamma"],
        DEFAULTS["gamma"],
        step=1,
        label="γ, guesses per round",
        info="More can save target passes, or waste draft steps.",
    )
    chat = "Whether the prompt goes through the target's chat template."
    rest = [drafter, policy, gamma, *_sampling(), _radio("chat", "Chat template", chat)]
    controls = Controls._make([*naming, *rest])
    return controls, report


def _naming(pair: str) -> tuple[tuple[gr.Dropdown, gr.Textbox, gr.Textbox, gr.Radio], gr.HTML]:
    chosen = gr.Dropdown(
        pair_choices(pair, None),
        value=pair,
        label="Pair",
        info="A target and a draft with one tokenizer. Run loads it.",
    )
    with gr.Column(visible=False, elem_id="other-pair") as other:
        target = gr.Textbox(label="Target", placeholder="owner/model, or a folder", max_length=300)
        draft = gr.Textbox(label="Draft", placeholder="the same, or empty for none", max_length=300)
    chosen.change(
        None,
        chosen,
        other,
        js=f"(pair) => ({{ __type__: 'update', visible: pair === '{OTHER}' }})",
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )
    weights = gr.Radio(
        [("Usual", "usual"), ("16 bits", "bfloat16"), ("8", "8bit"), ("4", "4bit")],
        value="usual",
        label="Weights",
        info="Fewer bits take less memory; 8 and 4 need an NVIDIA GPU.",
    )
    report = gr.HTML(elem_id="doctor", apply_default_css=False, js_on_load=None)
    return (chosen, target, draft, weights), report


def _radio(name: str, label: str, info: str) -> gr.Radio:
    return gr.Radio(list(CHOICES[name]), value=DEFAULTS[name], label=label, info=info)


def _sampling() -> tuple[gr.Slider, gr.Slider, gr.Slider, gr.Slider, gr.Number]:
    temperature = gr.Slider(
        *LIMITS["temperature"],
        DEFAULTS["temperature"],
        step=0.05,
        label="Temperature",
        info="0 is greedy: both lanes must then agree.",
    )
    top_k = gr.Slider(
        *LIMITS["top_k"],
        DEFAULTS["top_k"],
        step=1,
        label="Top-k",
        info="Only the k likeliest tokens; 0 is off.",
    )
    top_p = gr.Slider(
        *LIMITS["top_p"],
        DEFAULTS["top_p"],
        step=0.01,
        label="Top-p",
        info="Only the likeliest, up to this mass; 1 is off.",
    )
    length = gr.Slider(
        *LIMITS["max_new_tokens"],
        DEFAULTS["max_new_tokens"],
        step=1,
        label="Length",
        info="Tokens that each lane writes, at most.",
    )
    seed = gr.Number(
        DEFAULTS["seed"],
        precision=0,
        label="Seed",
        info="The same seed repeats the run.",
    )
    return temperature, top_k, top_p, length, seed
