"""The settings panel: one Gradio control per setting, each with its explanation."""

from __future__ import annotations

from typing import Any, NamedTuple

import gradio as gr

MAX_LENGTH = 512
DEFAULTS: dict[str, Any] = {
    "drafter": "model",
    "gamma": 5,
    "temperature": 0.7,
    "top_k": 0,
    "top_p": 1.0,
    "max_new_tokens": 128,
    "seed": 1,
}
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
    drafter: gr.Radio
    gamma: gr.Slider
    temperature: gr.Slider
    top_k: gr.Slider
    top_p: gr.Slider
    length: gr.Slider
    seed: gr.Number

    def tunable(self) -> list[Any]:
        """All but the pair: what a preset may set."""
        return list(self[1:])

    def values_of(self, settings: dict[str, Any]) -> list[Any]:
        """The values of `tunable()` under these settings and otherwise the page's defaults."""
        return [{**DEFAULTS, **settings}[name] for name in DEFAULTS]


def make_controls(pair: str) -> Controls:
    """The panel's components, inside the current layout."""
    name = "Built-in pair" if pair == "builtin" else pair
    chosen = gr.Dropdown(
        [(name, pair)],
        value=pair,
        label="Pair",
        info="A target and a draft with one tokenizer.",
    )
    drafter = gr.Radio(
        [("Draft model", "model"), ("None", "none")],
        value=DEFAULTS["drafter"],
        label="Drafter",
        info="With none, both lanes are the same.",
    )
    gamma = gr.Slider(
        *LIMITS["gamma"],
        DEFAULTS["gamma"],
        step=1,
        label="γ, guesses per round",
        info="More can save target passes, or waste draft steps.",
    )
    return Controls(chosen, drafter, gamma, *_sampling())


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
