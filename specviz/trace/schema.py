"""The schema of a trace's JSON: what each field holds, and how it becomes an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..errors import SettingsError
from ..settings import CHOICES, RANGES, Settings
from .events import (
    LANES,
    OUTCOMES,
    Choice,
    Divergence,
    End,
    Header,
    Lane,
    Round,
    Token,
)
from .validators import (
    Wrong,
    date,
    flag,
    list_of,
    one_of,
    optional,
    real,
    record,
    text,
    whole,
)

SCHEMA = 1
TOP = 5  # entries of a top five
SLACK = 1e-4  # by which rounding in fp32 may lift a probability above 1

Parts: TypeAlias = "tuple[Header, list[Round], End | None]"

LONG = 1_000_000  # characters of a prompt, or its tokens
MOST_ROUNDS = 2 * (int(RANGES["max_new_tokens"][1]) + 1)
MOST_DRAFTED = int(RANGES["gamma"][1])

# An end gives the bytes that never became characters to its last token, all at once.
TEXT = text(10_000)
NAME = text(200)
ID = whole(0, 2**31 - 1)
PROBABILITY = real(0.0, 1.0 + SLACK, "a probability from 0 to 1")
SECONDS = real(0.0, 1e7)


def _top(label: str) -> Any:
    choice = record(Choice, {"id": ID, "text": TEXT, "probability": PROBABILITY})
    choices = list_of(choice, TOP, label + " entry")

    def read(value: Any) -> tuple[Choice, ...]:
        listed = tuple(choices(value))
        chances = [choice.probability for choice in listed]
        if chances != sorted(chances, reverse=True):
            raise Wrong("is not in falling order of probability", named=False)
        if sum(chances) > 1.0 + SLACK:
            raise Wrong(f"adds up to {sum(chances):.6g}, more than 1", named=False)
        return listed

    return read


TOKEN = record(
    Token,
    {"id": ID, "text": TEXT, "outcome": one_of(OUTCOMES)},
    {
        **dict.fromkeys(("p", "q", "beta", "soft_p", "soft_q"), optional(PROBABILITY)),
        "u": optional(real(0.0, 1.0)),
        **{name: _top(name) for name in ("top_p", "top_q", "top_residual")},
    },
)

ROUND = record(
    Round,
    {
        "lane": one_of(LANES),
        "index": whole(0, MOST_ROUNDS),
        "drafted": list_of(TOKEN, MOST_DRAFTED, "drafted token"),
        "emitted": list_of(TOKEN, MOST_DRAFTED + 1, "emitted token"),
        **dict.fromkeys(("draft_seconds", "verify_seconds", "overhead_seconds"), SECONDS),
        "clock": SECONDS,
    },
)


def _settings(**values: Any) -> Settings:
    try:
        return Settings(**values)
    except SettingsError as error:
        # Its values have passed the readers below, so the sentence is short and harmless.
        raise Wrong(str(error).rstrip("."), "settings") from error


SETTINGS = record(
    _settings,
    {
        **{name: whole(*map(int, RANGES[name])) for name in ("gamma", "top_k", "max_new_tokens")},
        "seed": whole(*map(int, RANGES["seed"])),
        **{name: real(*RANGES[name]) for name in ("temperature", "top_p")},
        "drafter": one_of(CHOICES["drafter"]),
        "stop": list_of(text(1000), 100, "stop text"),
        "ignore_eos": flag,
    },
    # Recordings made before these existed lack them, and ran as the defaults say.
    {name: one_of(CHOICES[name]) for name in ("gamma_policy", "chat")},
    label="settings",
)


def _model(role: str) -> Any:
    known = {"name": NAME, "parameters": whole(0, 10**15), "form": NAME}
    return record(dict, known, {"revision": optional(NAME)}, label=role)


def _header(*, prompt_ids: list[int], **values: Any) -> Header:
    if not prompt_ids:
        raise Wrong("prompt_ids is empty", "header")
    return Header(prompt_ids=tuple(prompt_ids), **values)


PREFILL = record(dict, {"target": SECONDS}, {"draft": SECONDS})

HEADER = record(
    _header,
    {
        "prompt": text(LONG),
        "prompt_ids": list_of(ID, LONG, "prompt id"),
        "settings": SETTINGS,
        "target": _model("target"),
        "draft": optional(_model("draft")),
        "device": NAME,
        "dtype": NAME,
        "versions": record(
            dict,
            dict.fromkeys(("python", "torch", "transformers"), NAME),
            dict.fromkeys(("specviz", "cuda"), NAME),
            label="versions",
        ),
        "threads": whole(1, 100_000),
        "date": date,
        "prefill_seconds": record(dict, dict.fromkeys(LANES, PREFILL), label="prefill_seconds"),
        "mode": one_of(("interleaved", "sequential")),
    },
    {"processor": NAME},
    label="header",
)

DIVERGENCE = record(
    Divergence,
    {"index": whole(0, MOST_ROUNDS), "margin": optional(real(0.0, 1e6))},
    label="divergence",
)

REASON = one_of(("eos", "length", "context", "stop", "stopped"))

END = record(
    End,
    {
        "reasons": record(dict, dict.fromkeys(LANES, REASON), label="reasons"),
        "identical": optional(flag),
        "compared": whole(0, MOST_ROUNDS),
        "divergence": optional(DIVERGENCE),
    },
    label="end",
)


def round_name(lane: Lane, index: int) -> str:
    """What an error calls a round: counted from 1, as everywhere that a person looks."""
    return f"round {index + 1} of the {lane} lane"


def _round_label(place: int, item: Any) -> str:
    # The raw values name the round only if they can be trusted to be short.
    if type(item) is dict:
        lane, index = item.get("lane"), item.get("index")
        if type(lane) is str and lane in LANES and type(index) is int and 0 <= index < 10**6:
            return round_name(lane, index)
    return f"entry {place + 1} of the rounds"


def _parts(header: Header, rounds: Sequence[Round], end: End | None, **_: Any) -> Parts:
    return header, list(rounds), end


TRACE = record(
    _parts,
    {
        "schema": whole(SCHEMA, SCHEMA),
        "header": HEADER,
        "rounds": list_of(ROUND, MOST_ROUNDS, _round_label),
        "end": optional(END),
    },
    {"digest": text(71)},  # "sha256:" and 64 digits
)


def read_trace(data: Any) -> Parts:
    """What the JSON values of a trace stand for. Raises `TraceError`."""
    try:
        # First, so that a file of another version is not called damaged.
        if type(data) is dict and type(data.get("schema")) is int and data["schema"] != SCHEMA:
            raise Wrong(
                f"has schema {data['schema']:.6g} and this version of specviz reads {SCHEMA}",
                named=False,
            )
        parts: Parts = TRACE(data)
    except Wrong as wrong:
        raise wrong.of("this recording").error() from None
    return parts
