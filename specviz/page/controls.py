"""The settings that the page offers, and the controls that a browser builds from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..base.environment import may_have_gpu
from ..base.errors import PromptError, SettingsError
from ..core.lanes import Lane
from ..core.registry import drafters, verdicts
from ..core.settings import Settings
from ..core.several import beside, parsed_lane
from ..pairs.matches import Match
from ..pairs.spec import MAX_NAME
from ..pairs.table import named_pair
from ..runs.vocabulary import COMPARED as COMPARED_WORDS
from ..runs.vocabulary import POLICIES
from ..worker.tasks import Host
from .choices import listed_drafters, pair_choices
from .local_pairs import local_choices

MAX_CHARACTERS = 8000  # of a prompt
MAX_OTHERS = 2  # lanes with drafts besides the first

START = Settings(temperature=0.7, seed=1)
"""The settings with which the page begins."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of `Settings` on the page, with limits, or with choices by label. step: the step of
    a slider; None for a number input.
    """

    label: str
    info: str
    limits: tuple[float, float] | None = None
    step: float | None = None
    choices: dict[str, str] | None = None


OFFERED = {
    "drafter": Setting(
        "Drafter",
        "Where guesses come from; all that this pair can use.",
        choices={kind.choice: kind.name for kind in drafters()},
    ),
    "gamma_policy": Setting(
        "γ policy",
        "Fixed, or adapted up to γ: by verdicts, or by how sure the draft is.",
        choices={words["choice"]: name for name, words in POLICIES.items()},
    ),
    "gamma": Setting(
        "γ, guesses per round", "More can save target passes, or waste draft steps.", (1, 64), 1
    ),
    "temperature": Setting("Temperature", "0 is greedy: both lanes must then agree.", (0, 2), 0.05),
    "top_k": Setting("Top-k", "Only the k likeliest tokens; 0 is off.", (0, 200), 1),
    "top_p": Setting("Top-p", "Only the likeliest, up to this mass; 1 is off.", (0.05, 1), 0.01),
    "max_new_tokens": Setting("Length", "The most tokens that each lane writes.", (1, 512), 1),
    # The largest seed is the largest integer that JavaScript can count to.
    "seed": Setting("Seed", "The same seed repeats the run.", (0, 2**53 - 1)),
    "chat": Setting(
        "Chat template",
        "Whether the prompt is put into the target's chat template.",
        choices={
            "If tuned for it": "auto",
            "On": "on",
            "On, no special tokens": "literal",
            "Off": "off",
        },
    ),
    "verdict": Setting(
        "Verdict",
        "How guesses are judged. Typical is not exact: it changes the text.",
        choices={kind.choice: kind.name for kind in verdicts()},
    ),
}
"""All settings that visitors can change, by their field in `Settings`, in the panel's order."""

COMPARED = {words["choice"]: name for name, words in COMPARED_WORDS.items()}
"""The differences between lanes with drafts that a visitor may choose, by label."""

DEFAULTS: dict[str, Any] = {name: getattr(START, name) for name in OFFERED}
CHAT_LENGTH = 200  # tokens: most answers of a small model are shorter

LIMITS = {name: control.limits for name, control in OFFERED.items() if control.limits}
CHOICES = {
    name: list(control.choices.values()) for name, control in OFFERED.items() if control.choices
}
MAX_LENGTH = int(LIMITS["max_new_tokens"][1])  # tokens


def defaults_of(pair: str) -> dict[str, Any]:
    """The settings with which a page of this pair begins: with a drafter that the pair offers,
    with room for an answer if its target was tuned for chat, and with the gamma and the policy that
    suit it."""
    offered = listed_drafters(pair)
    row = named_pair(pair)
    usual = dict(DEFAULTS)
    if offered and usual["drafter"] not in offered:
        usual["drafter"] = offered[0]
    if row is not None and row.target.chat:
        usual["max_new_tokens"] = CHAT_LENGTH
    if row is not None:
        row_defaults = row.defaults(on_gpu=may_have_gpu())
        for name in ("gamma", "gamma_policy"):
            if name in row_defaults:
                usual[name] = row_defaults[name]
    return usual


def checked_settings(values: dict[str, Any]) -> Settings:
    """Make settings of these values. Raises `SettingsError`, also for a run that is longer than the
    page allows: a request may not come from the page's own controls."""
    settings = Settings(**values)
    if settings.max_new_tokens > MAX_LENGTH:
        raise SettingsError(f"the length is {settings.max_new_tokens}: use up to {MAX_LENGTH}.")
    return settings


def checked_others(settings: Settings, others: object) -> dict[Lane, Settings] | None:
    """The lanes of a race of `settings` and `others`, texts with the differences of each further
    lane with drafts. None if there is no further lane. Raises `SettingsError`."""
    if not others:
        return None
    if not _are_texts(others):
        raise SettingsError(
            'the lanes are not a list of strings: use one such as ["drafter=ngram"].'
        )
    if len(others) > MAX_OTHERS:
        raise SettingsError(f"{len(others)} further lanes are requested: use up to {MAX_OTHERS}.")
    return beside(settings, map(parsed_lane, others))


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def compared_with(settings: Settings, compare: object, offered: Collection[str]) -> list[str]:
    """The further lanes of a choice of `COMPARED`, in the form of `checked_others`.

    offered: the pair's drafters. Raises `SettingsError`.
    """
    if compare not in COMPARED.values():
        choices = ", ".join(map(repr, COMPARED.values()))
        raise SettingsError(f"the lanes are {str(compare)[:40]!r}: use one of {choices}.")
    others: list[str] = []
    if compare == "drafters":
        others = _other_lanes("drafter", _drafters_beside(offered), settings)
    elif compare == "gammas":
        others = _other_lanes("gamma", _gammas_near(settings.gamma), settings)
    elif compare == "policies":
        others = _other_lanes("gamma_policy", CHOICES["gamma_policy"], settings)
    elif compare == "verdicts":
        others = _other_lanes("verdict", CHOICES["verdict"], settings)
    return others[:MAX_OTHERS]


def _other_lanes(field: str, values: Sequence[object], settings: Settings) -> list[str]:
    """A lane for each of these values of a setting but the first lane's own."""
    own_value = getattr(settings, field)
    return [f"{field}={value}" for value in values if value != own_value]


def _drafters_beside(offered: Collection[str]) -> list[str]:
    """The offered drafters, in the order in which lanes other than the first use them."""
    kinds = sorted(drafters()[:-1], key=lambda kind: kind.page_order)  # the last has no drafts
    return [kind.name for kind in kinds if kind.name in offered]


def _gammas_near(gamma: int) -> list[int]:
    max_gamma = int(LIMITS["gamma"][1])
    half = max(1, gamma // 2)
    double = min(max_gamma, 2 * gamma)
    near = (half, double, 1, max_gamma)
    return list(dict.fromkeys(near))


def drafter_choices(offered: Collection[str]) -> list[tuple[str, str]]:
    """Return the drafters that a pair offers, as (label, value) in the panel's order."""
    labels = OFFERED["drafter"].choices or {}
    return [(label, value) for label, value in labels.items() if value in offered]


def checked_prompt(prompt: object) -> str:
    """Check that a prompt is a text within the page's limit. Raises `PromptError`."""
    if not isinstance(prompt, str):
        raise PromptError("The prompt is not a text: send a string.")
    if not prompt.strip():
        raise PromptError("The prompt is empty: write at least one word.")
    if len(prompt) > MAX_CHARACTERS:
        raise PromptError(f"The prompt has {len(prompt)} characters: use up to {MAX_CHARACTERS}.")
    return prompt


FOLDED = ("gamma_policy", "top_k", "top_p", "chat", "verdict")
"""The settings that are folded away besides lanes and weights, by their field."""

BIT_CHOICES = {
    "Usual": "usual",
    "16 bits": "bfloat16",
    "8": "8bit",
    "4": "4bit",
    "fp32 products": "fp32",
}


def controls_of(
    pair: str, machine: Host | None, matches: Sequence[Match] = ()
) -> list[dict[str, Any]]:
    """The page's controls in their order, for `controls/controls.js`. Each has a name, a label, a
    kind and the fields of its kind. pair: the pair that the page was started with. machine: None
    while it is unknown. matches: pairs of models stored on it.
    """
    # Local models come first: all others may have to be fetched.
    pairs = [*local_choices(matches), *pair_choices(pair, machine)]
    listed = listed_drafters(pair)
    settings = [_control(name, setting) for name, setting in OFFERED.items()]
    if listed is not None:
        for control in settings:
            if control["name"] == "drafter":
                control["choices"] = drafter_choices(listed)
    lanes = Setting(
        "Lanes with drafts",
        "One, or up to three that differ in this.",
        choices=COMPARED,
    )
    weights = Setting(
        "Weights",
        "Fewer bits take less memory; the text may differ.",
        choices=BIT_CHOICES,
    )
    pair_list = {
        "name": "pair",
        "kind": "list",
        "label": "Pair",
        "info": "A target and a draft. Run loads them.",
        "choices": pairs,
    }
    return [
        pair_list,
        _model("target", "Target", "owner/model, a folder or a .gguf file"),
        _model("draft", "Draft", "the same, or empty for none"),
        *(control for control in settings if not control["folded"]),
        *(control for control in settings if control["folded"]),
        {**_control("lanes", lanes), "folded": True},
        {**_control("weights", weights), "folded": True},
    ]


def _model(name: str, label: str, placeholder: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "text",
        "label": label,
        "placeholder": placeholder,
        "longest": MAX_NAME,
    }


def _control(name: str, setting: Setting) -> dict[str, Any]:
    control: dict[str, Any] = {
        "name": name,
        "label": setting.label,
        "info": setting.info,
        "folded": name in FOLDED,
    }
    if setting.choices:
        return {**control, "kind": "choice", "choices": list(setting.choices.items())}
    if setting.step:
        return {**control, "kind": "range", "limits": setting.limits, "step": setting.step}
    return {**control, "kind": "number", "limits": setting.limits}
