"""Invalid recordings by name.

The functions in INVALID edit the JSON values of a sampled run, those in INVALID_GREEDY the values
of a greedy run, and those in DAMAGED_FILES the bytes of a gzipped file.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any, TypeAlias

from filed import tokens

Values: TypeAlias = dict[str, Any]
Place: TypeAlias = Callable[[Values], Values]
Edit: TypeAlias = Callable[[Values], object]


def part(*names: str) -> Place:
    """Make a function that returns the object at this path."""

    def found(data: Values) -> Values:
        for name in names:
            data = data[name]
        return data

    return found


WHOLE = part()
HEADER = part("header")
END = part("end")
SAID = part("end", "lanes", "speculative")
LANES_SAID = {"speculative": {"identical": True, "compared": 0, "divergence": None}}
NOTHING_SAID = {"speculative": {"identical": None, "compared": 4, "divergence": None}}
SETTINGS = part("header", "lanes", "speculative")
TARGET = part("header", "target")


def round_with(outcome: str, lane: str = "speculative") -> Place:
    """Make a function that finds the first round with this outcome, after round 0."""

    def found(data: Values) -> Values:
        for r in data["rounds"]:
            seen = [t["outcome"] for t in tokens(r)]
            if r["lane"] == lane and r["index"] > 0 and outcome in seen:
                return r
        raise LookupError(outcome)

    return found


def token(outcome: str, lane: str = "speculative") -> Place:
    """Make a function that finds the first token with this outcome in that round."""

    def found(data: Values) -> Values:
        return next(t for t in tokens(round_with(outcome, lane)(data)) if t["outcome"] == outcome)

    return found


def put(place: Place, name: str, value: Any) -> Edit:
    return lambda data: place(data).__setitem__(name, value)


def drop(place: Place, name: str) -> Edit:
    return lambda data: place(data).pop(name)


def shift(place: Place, name: str, by: float) -> Edit:
    return lambda data: place(data).__setitem__(name, place(data)[name] + by)


def swap_rounds(data: Values) -> None:
    rounds = data["rounds"]
    last = max(i for i, r in enumerate(rounds) if r["lane"] != rounds[-1]["lane"])
    rounds[last], rounds[last + 1] = rounds[last + 1], rounds[last]


def all_kept(data: Values) -> Values:
    """The first round with drafts that were all accepted, and a bonus."""
    rounds = (r for r in data["rounds"] if r["drafted"] and r["last"])
    return next(r for r in rounds if r["last"]["outcome"] == "bonus")


def bonus_after_ignored(data: Values) -> None:
    all_kept(data)["drafted"][-1] |= {"outcome": "ignored", "p": None, "u": None, "beta": None}


LONG_NAME = "<script>" * 1000
ROUND = round_with("rejected")
BASELINE = round_with("bonus", "baseline")
REJECTED = token("rejected")
IGNORED = token("ignored")
CORRECTED = token("corrected")
BONUS = token("bonus")
DAMAGED_TOP = [{"id": 1, "text": "a", "probability": p} for p in (0.2, 0.5)]
HEAVY_TOP = [{"id": i, "text": "a", "probability": 0.7} for i in (1, 2)]
MANY_TOP = [{"id": i, "text": "a", "probability": 0.1} for i in range(6)]

INVALID: dict[str, Edit] = {
    # the outside
    "another version": put(WHOLE, "schema", 3),
    "schema as text": put(WHOLE, "schema", "2"),
    "no header": drop(WHOLE, "header"),
    "no rounds": drop(WHOLE, "rounds"),
    "no end field": drop(WHOLE, "end"),
    "unknown part": put(WHOLE, "extra", 1),
    "long unknown part": put(WHOLE, LONG_NAME, 1),
    "rounds as object": put(WHOLE, "rounds", {}),
    "a round as number": lambda d: d["rounds"].insert(0, 7),
    "wrong digest": put(WHOLE, "digest", "sha256:0"),
    "digest as number": put(WHOLE, "digest", 7),
    # the header
    "header as list": put(WHOLE, "header", []),
    "prompt as number": put(HEADER, "prompt", 3),
    "another question": put(HEADER, "question", "Is this another one?"),
    "no prompt ids": put(HEADER, "prompt_ids", []),
    "negative id": put(HEADER, "prompt_ids", [1, -1]),
    "true as id": put(HEADER, "prompt_ids", [True]),
    "gamma too large": put(SETTINGS, "gamma", 99),
    "gamma as real": put(SETTINGS, "gamma", 1.5),
    "top_p of nothing": put(SETTINGS, "top_p", 0),
    "a drafter of no name": put(SETTINGS, "drafter", "an oracle"),
    "unknown policy": put(SETTINGS, "gamma_policy", "wild"),
    "chat as flag": put(SETTINGS, "chat", True),
    "unknown setting": put(SETTINGS, "heat", 1),
    "setting missing": drop(SETTINGS, "seed"),
    "stop as number": put(SETTINGS, "stop", [1]),
    "model without name": drop(TARGET, "name"),
    "parameters as text": put(TARGET, "parameters", "7B"),
    "long device": put(HEADER, "device", "x" * 500),
    "date without zone": put(HEADER, "date", "2026-01-01"),
    "no threads": put(HEADER, "threads", 0),
    "unknown mode": put(HEADER, "mode", "relay"),
    "negative prefill": put(part("header", "prefill_seconds", "baseline"), "target", -1),
    # the schema of rounds
    "unknown lane": put(ROUND, "lane", "third"),
    "clock as text": put(ROUND, "clock", "1 s"),
    "p above 1": put(REJECTED, "p", 1.2),
    "p below 0": put(REJECTED, "p", -0.1),
    "unknown outcome": put(REJECTED, "outcome", "liked"),
    "token without text": drop(REJECTED, "text"),
    "unknown token field": put(REJECTED, "rank", 1),
    "top in wrong order": put(REJECTED, "top_p", DAMAGED_TOP),
    "top adds up": put(REJECTED, "top_q", HEAVY_TOP),
    "top too long": put(REJECTED, "top_p", MANY_TOP),
    "choice not an object": put(REJECTED, "top_p", [3]),
    "too many drafts": lambda d: ROUND(d).update(drafted=ROUND(d)["drafted"] * 20),
    # the rules of a run
    "index repeated": shift(ROUND, "index", -1),
    "rounds swapped": swap_rounds,
    "clock goes back": put(ROUND, "clock", 0),
    "clock off": shift(ROUND, "clock", 0.01),
    "a part too long": shift(BASELINE, "verify_seconds", 1.0),
    "past the length": put(SETTINGS, "max_new_tokens", 3),
    "past gamma": put(SETTINGS, "gamma", 1),
    "baseline drafts": lambda d: BASELINE(d).update(drafted=[BASELINE(d)["last"]]),
    "ignored, then judged": lambda d: ROUND(d)["drafted"].__setitem__(0, IGNORED(d)),
    "bonus as draft": put(REJECTED, "outcome", "bonus"),
    "two tokens of its own": lambda d: ROUND(d).update(last=[CORRECTED(d), CORRECTED(d)]),
    "nothing emitted": put(BASELINE, "last", None),
    "bonus after a rejection": put(CORRECTED, "outcome", "bonus"),
    "not corrected": put(round_with("corrected"), "last", None),
    "bonus after ignored": bonus_after_ignored,
    "cut, yet goes on": put(all_kept, "last", None),
    "rejected against the draw": put(REJECTED, "u", 0.0),
    "accepted against the draw": put(token("accepted"), "p", 0.0),
    "drawn from nothing": put(REJECTED, "q", 0.0),
    "judged without a draw": put(REJECTED, "u", None),
    # the end
    "unknown reason": put(part("end", "reasons"), "baseline", "tired"),
    "lane without reason": drop(part("end", "reasons"), "baseline"),
    "sampled yet compared": put(END, "lanes", LANES_SAID),
    "compared nothing": put(END, "lanes", NOTHING_SAID),
}

INVALID_GREEDY: dict[str, Edit] = {
    "no comparison": put(SAID, "identical", None),
    "compared too much": shift(SAID, "compared", 1),
    "denies what is the same": put(SAID, "identical", False),
    "parting nowhere": put(SAID, "divergence", {"index": 1, "margin": None}),
    "negative margin": put(SAID, "divergence", {"index": 1, "margin": -1}),
}

DAMAGED_FILES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut off": lambda raw: raw[:-20],
    "only the mark of gzip": lambda raw: raw[:2],
    "a byte changed": lambda raw: raw[:-6] + b"\0\0" + raw[-4:],
    "something after it": lambda raw: raw + b"more",
    "a zip archive": lambda raw: b"PK\3\4" + raw,
    "a picture": lambda raw: b"\x89PNG\r\n\x1a\n" + bytes(50),
    "half of the JSON": lambda raw: gzip.decompress(raw)[:500],
    "not UTF-8": lambda raw: b'{"schema": "\xff"}',
    "half a surrogate pair": lambda raw: b'{"schema": "\\ud800"}',
    "not a number": lambda raw: b'{"schema": NaN}',
    "a number past all bounds": lambda raw: b'{"schema": 1e999}',
    "nested a million times": lambda raw: b"[" * 1_000_000,
    "a list": lambda raw: b"[1, 2]",
    "null": lambda raw: b"null",
    "an empty object": lambda raw: b"{}",
}
