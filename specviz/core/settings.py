"""The settings of one run: one frozen dataclass that cannot hold an invalid value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..base.errors import SettingsError
from .registry import (
    drafter_names,
    has_drafter,
    has_verdict,
    verdict_kind,
    verdict_names,
)

GAMMA_POLICIES = ("fixed", "heuristic", "optimal", "confidence")
"""The policies for the number of tokens in a round: gamma; as many as the last rounds make likely
to be kept; as many as the predicted speed-up makes best; or up to gamma, as long as the draft is
sure of them."""

CHATS = ("auto", "on", "off", "literal")
"""The uses of the chat template for a prompt: if the model is tuned for it, always, never, or
always and with the prompt's control tokens read as plain text."""

CHOICES: dict[str, Callable[[], tuple[str, ...]]] = {
    "drafter": drafter_names,
    "gamma_policy": lambda: GAMMA_POLICIES,
    "chat": lambda: CHATS,
    "verdict": verdict_names,
}
"""The fields that hold one of several names, and the functions that list these."""

NO_SETTINGS = "the settings are {}: use Settings(gamma=5), for example, or one for each lane."

TOKEN_VERDICT = "token"
"""The name of the token rule."""

# field: (lowest, highest) allowed, both ends included; whole numbers where these are
RANGES: dict[str, tuple[float, float]] = {
    "gamma": (0, 64),
    "temperature": (0.0, 10.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "max_new_tokens": (0, 100_000),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to decode. Raises `SettingsError` naming the field, the value and the allowed range.

    gamma: drafted tokens per round, or the most that a round may draft if a policy adapts it; 0 is
        no speculation.
    temperature: divides both models' logits; 0 is greedy (one-hot, not a small temperature).
    top_k: keep the k likeliest tokens; 0 is off.
    top_p: keep the fewest likeliest tokens whose mass reaches it, as in nucleus sampling; above 0,
        1 is off.
    max_new_tokens: most tokens that a lane emits; 0 is allowed.
    seed: of every random draw; a seeded run repeats on the same device and dtype.
    drafter, verdict: the names of kinds (`specviz.kinds`). gamma_policy: one of `GAMMA_POLICIES`.
    chat: one of `CHATS`.
    stop: a lane ends with the token that completes any of these strings.
    ignore_eos: keep decoding after an end-of-text token, so that lengths can be compared.
    """

    gamma: int = 5
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int = 128
    seed: int = 0
    drafter: str = "model"
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    gamma_policy: str = "fixed"
    chat: str = "auto"
    verdict: str = "token"

    def __post_init__(self) -> None:
        for name in RANGES:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.top_p == 0.0:
            raise SettingsError("top_p is 0, which keeps no token: use a value above 0, up to 1.")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if not _is_choice(name, value):
                names = ", ".join(map(repr, choices()))
                raise SettingsError(f"{name} is {_shown(value)}: use one of {names}.")
        object.__setattr__(self, "stop", _strings(self.stop))
        if not isinstance(self.ignore_eos, bool):
            raise SettingsError(f"ignore_eos is {_shown(self.ignore_eos)}: use True or False.")

    @property
    def greedy(self) -> bool:
        """Whether each token is the argmax of its logits."""
        return self.temperature == 0.0

    @property
    def effective_verdict(self) -> str:
        """The name of the verdict in effect: the token rule's in a greedy run, where all rules keep
        the same drafts."""
        return TOKEN_VERDICT if self.greedy else self.verdict

    @property
    def exact(self) -> bool:
        """Whether the text follows the target's own distribution."""
        return verdict_kind(self.effective_verdict).exact

    @property
    def adapts(self) -> bool:
        """Whether a policy chooses how many tokens each round drafts."""
        return self.gamma > 0 and self.gamma_policy != "fixed"

    @property
    def truncates(self) -> bool:
        """Whether top-k or top-p may rule tokens out."""
        return self.top_k > 0 or self.top_p < 1.0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Settings from JSON; raises `SettingsError` on a field that does not exist."""
        return cls(**cls.known(values))

    @classmethod
    def known(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return `values` themselves. Raises `SettingsError` if one belongs to no field."""
        names = sorted(field.name for field in fields(cls))
        for name in values:
            if name not in names:
                raise SettingsError(f"there is no setting {name!r}: use {', '.join(names)}.")
        return dict(values)


def _is_choice(name: str, value: object) -> bool:
    # A kind of ours needs no search for plug-ins, which takes some milliseconds.
    if name == "drafter":
        return has_drafter(value)
    if name == "verdict":
        return has_verdict(value)
    return value in CHOICES[name]()


def _number(name: str, value: Any) -> float:
    """Convert the value of a field to its number. Raises `SettingsError`."""
    low, high = RANGES[name]
    must_be_whole = isinstance(low, int)
    kind = "a whole number" if must_be_whole else "a number"
    allowed = "above 0, up to 1" if name == "top_p" else f"{low} to {high}"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (must_be_whole and value % 1 != 0):
        raise SettingsError(f"{name} is {_shown(value)}: use {kind}, {allowed}.")
    if must_be_whole:
        value = int(value)
    # NaN compares false with everything, so it is out of every range.
    if not low <= value <= high:
        raise SettingsError(f"{name} is {_shown(value)}: use {allowed}.")
    return value if must_be_whole else float(value)


def _shown(value: object) -> str:
    # Python refuses to print integers of thousands of digits.
    if isinstance(value, int) and abs(value) > 10**20:
        return "too large"
    return repr(value)[:40]


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, (tuple, list)) or not all(isinstance(s, str) and s for s in value):
        raise SettingsError(f"stop is {_shown(value)}: use a list of non-empty strings.")
    return tuple(value)
