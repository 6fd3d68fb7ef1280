"""Invalid recordings, each with a part of the error message that it must get.

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
    """A function that returns the object under these names, from the outside in."""

    def found(data: Values) -> Values:
        for name in names:
            data = data[name]
        return data

    return found


WHOLE, HEADER, END = part(), part("header"), part("end")
SAID = part("end", "lanes", "speculative")
LANES_SAID = {"speculative": {"identical": True, "compared": 0, "divergence": None}}
NOTHING_SAID = {"speculative": {"identical": None, "compared": 4, "divergence": None}}
SETTINGS, TARGET = part("header", "lanes", "speculative"), part("header", "target")


def round_with(outcome: str, lane: str = "speculative") -> Place:
    """The first round of a lane, after its round 0, that holds a token with this outcome."""

    def found(data: Values) -> Values:
        for r in data["rounds"]:
            seen = [t["outcome"] for t in tokens(r)]
            if r["lane"] == lane and r["index"] > 0 and outcome in seen:
                return r
        raise LookupError(outcome)

    return found


def token(outcome: str, lane: str = "speculative") -> Place:
    """The first token with this outcome in `round_with(outcome)`."""

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


def all_kept(data: Values) -> list[Values]:
    """The rounds whose drafts were all accepted, each with a bonus."""
    rounds = (r for r in data["rounds"] if r["drafted"] and r["last"])
    return [r for r in rounds if r["last"]["outcome"] == "bonus"]


def cut_in_the_middle(data: Values) -> None:
    """A round that stops after its accepted tokens although its lane goes on."""
    all_kept(data)[0]["last"] = None


def cut_at_the_end(data: Values) -> None:
    """A last round that stops after its accepted tokens although nothing ended it."""
    last = [r for r in data["rounds"] if r["lane"] == "speculative"][-1]
    assert last is all_kept(data)[-1]
    last["last"] = None


def bonus_after_ignored(data: Values) -> None:
    r = all_kept(data)[0]
    r["drafted"][-1] |= {"outcome": "ignored", "p": None, "u": None, "beta": None}


def rejected_and_not_corrected(data: Values) -> None:
    round_with("corrected")(data)["last"] = None


LONG_NAME = "<script>" * 1000
ROUND, BASELINE = round_with("rejected"), round_with("bonus", "baseline")
REJECTED, IGNORED = token("rejected"), token("ignored")
CORRECTED, BONUS = token("corrected"), token("bonus")
DAMAGED_TOP = [{"id": 1, "text": "a", "probability": p} for p in (0.2, 0.5)]
HEAVY_TOP = [{"id": i, "text": "a", "probability": 0.7} for i in (1, 2)]
MANY_TOP = [{"id": i, "text": "a", "probability": 0.1} for i in range(6)]

INVALID: dict[str, tuple[Edit, str]] = {
    # the outside
    "another version": (
        put(WHOLE, "schema", 3),
        "schema 3 and this version of specviz reads up to 2",
    ),
    "schema as text": (put(WHOLE, "schema", "2"), "schema is '2', but it should be 2"),
    "no header": (drop(WHOLE, "header"), "header is missing"),
    "no rounds": (drop(WHOLE, "rounds"), "rounds is missing"),
    "no end field": (drop(WHOLE, "end"), "end is missing"),
    "unknown part": (put(WHOLE, "extra", 1), "there is a field extra, which does not exist"),
    "long unknown part": (put(WHOLE, LONG_NAME, 1), r"'\x3cscript\x3e"),
    "rounds as object": (
        put(WHOLE, "rounds", {}),
        "rounds is an object, but it should be a valid list",
    ),
    "a round as number": (lambda d: d["rounds"].insert(0, 7), "entry 1 of the rounds is 7"),
    "wrong digest": (put(WHOLE, "digest", "sha256:0"), "the digest does not fit"),
    "digest as number": (put(WHOLE, "digest", 7), "digest is 7, but it should be a text"),
    # the header
    "header as list": (put(WHOLE, "header", []), "header is a list, but it should be an object"),
    "prompt as number": (
        put(HEADER, "prompt", 3),
        "header: prompt is 3, but it should be a text",
    ),
    "another question": (
        put(HEADER, "question", "Is this another one?"),
        "header: question is no part of prompt",
    ),
    "no prompt ids": (put(HEADER, "prompt_ids", []), "header: prompt_ids is empty"),
    "negative id": (put(HEADER, "prompt_ids", [1, -1]), "header: prompt id 2 is -1"),
    "true as id": (put(HEADER, "prompt_ids", [True]), "header: prompt id 1 is true"),
    "gamma too large": (put(SETTINGS, "gamma", 99), "header, lanes, speculative: gamma is 99"),
    "gamma as real": (put(SETTINGS, "gamma", 1.5), "gamma is 1.5: use a whole number"),
    "top_p of nothing": (put(SETTINGS, "top_p", 0), "top_p is 0, which keeps no token"),
    "a drafter of no name": (
        put(SETTINGS, "drafter", "an oracle"),
        "drafter is 'an oracle': use one of",
    ),
    "unknown policy": (put(SETTINGS, "gamma_policy", "wild"), "gamma_policy is 'wild': use one of"),
    "chat as flag": (
        put(SETTINGS, "chat", True),
        "chat is True: use one of 'auto', 'on', 'off', 'literal'",
    ),
    "unknown setting": (put(SETTINGS, "heat", 1), "there is no setting 'heat'"),
    "setting missing": (drop(SETTINGS, "seed"), "header, lanes, speculative: seed is missing"),
    "stop as number": (
        put(SETTINGS, "stop", [1]),
        "stop is [1]: use a list of strings",
    ),
    "model without name": (drop(TARGET, "name"), "header, target: name is missing"),
    "parameters as text": (put(TARGET, "parameters", "7B"), "parameters is '7B'"),
    "long device": (
        put(HEADER, "device", "x" * 500),
        "…', but it should have at most 200 characters",
    ),
    "date without zone": (put(HEADER, "date", "2026-01-01"), "date: 2026-01-01 has no time zone"),
    "no threads": (put(HEADER, "threads", 0), "threads is 0"),
    "unknown mode": (put(HEADER, "mode", "relay"), "mode is 'relay', but it should be"),
    "negative prefill": (
        put(part("header", "prefill_seconds", "baseline"), "target", -1),
        "prefill_seconds, baseline: target is -1",
    ),
    # the schema of rounds
    "unknown lane": (put(ROUND, "lane", "third"), "lane is not one of speculative"),
    "clock as text": (put(ROUND, "clock", "1 s"), "of the speculative lane: clock is '1 s'"),
    "p above 1": (put(REJECTED, "p", 1.2), "p is 1.2, but it should be less"),
    "p below 0": (put(REJECTED, "p", -0.1), "p is -0.1, but it should be greater"),
    "unknown outcome": (
        put(REJECTED, "outcome", "liked"),
        "outcome is 'liked', but it should be accepted",
    ),
    "token without text": (drop(REJECTED, "text"), "text is missing"),
    "unknown token field": (put(REJECTED, "rank", 1), "there is a field rank, which"),
    "top in wrong order": (
        put(REJECTED, "top_p", DAMAGED_TOP),
        "top_p: it is not in falling order",
    ),
    "top adds up": (put(REJECTED, "top_q", HEAVY_TOP), "top_q: it adds up to 1.4, more than 1"),
    "top too long": (
        put(REJECTED, "top_p", MANY_TOP),
        "top_p is a list, but it should have at most 5 items",
    ),
    "choice not an object": (
        put(REJECTED, "top_p", [3]),
        "top_p entry 1 is 3, but it should be an object",
    ),
    "too many drafts": (
        lambda d: ROUND(d).update(drafted=ROUND(d)["drafted"] * 20),
        "it should have at most 64 items",
    ),
    # the rules of a run
    "index repeated": (shift(ROUND, "index", -1), "it stands where round"),
    "rounds swapped": (swap_rounds, "out of order in a race whose mode is interleaved"),
    "clock goes back": (put(ROUND, "clock", 0), "the clock goes back from"),
    "clock off": (shift(ROUND, "clock", 0.01), "the parts of the round add up to"),
    "a part too long": (shift(BASELINE, "verify_seconds", 1.0), "of the baseline lane: the clock"),
    "past the length": (put(SETTINGS, "max_new_tokens", 3), "more than max_new_tokens, 3"),
    "past gamma": (put(SETTINGS, "gamma", 1), "drafted tokens where 1 may be"),
    "baseline drafts": (
        lambda d: BASELINE(d).update(drafted=[BASELINE(d)["last"]]),
        "of the baseline lane: it has 1 drafted tokens where 0 may be",
    ),
    "ignored, then judged": (
        lambda d: ROUND(d)["drafted"].__setitem__(0, IGNORED(d)),
        "are not accepted ones, one rejected, ignored ones",
    ),
    "bonus as draft": (put(REJECTED, "outcome", "bonus"), "are not accepted ones"),
    "two tokens of its own": (
        lambda d: ROUND(d).update(last=[CORRECTED(d), CORRECTED(d)]),
        "last is a list, but it should be an object",
    ),
    "nothing emitted": (put(BASELINE, "last", None), "its last token must be one that is bonus"),
    "bonus after a rejection": (put(CORRECTED, "outcome", "bonus"), "one that is corrected"),
    "not corrected": (rejected_and_not_corrected, "one that is corrected"),
    "bonus after ignored": (bonus_after_ignored, "it emits a bonus although not all drafted"),
    "cut, yet goes on": (cut_in_the_middle, "it comes after a round that ended its lane"),
    "rejected against the draw": (put(REJECTED, "u", 0.0), "it was rejected with u = 0 and p / q"),
    "accepted against the draw": (
        put(token("accepted"), "p", 0.0),
        "and p / q = 0",
    ),
    "drawn from nothing": (put(REJECTED, "q", 0.0), "q is 0, but a draft never draws"),
    "judged without a draw": (put(REJECTED, "u", None), "u is missing from a token that was"),
    # the end
    "unknown reason": (put(part("end", "reasons"), "baseline", "tired"), "baseline is 'tired'"),
    "lane without reason": (
        drop(part("end", "reasons"), "baseline"),
        "the lanes are not speculative, baseline",
    ),
    "sampled yet compared": (put(END, "lanes", LANES_SAID), "identical must be true or false if"),
    "compared nothing": (put(END, "lanes", NOTHING_SAID), "identical must be true or false"),
}

INVALID_GREEDY: dict[str, tuple[Edit, str]] = {
    "no comparison": (put(SAID, "identical", None), "identical must be true or false if"),
    "compared too much": (shift(SAID, "compared", 1), "identical or compared is not"),
    "denies what is the same": (put(SAID, "identical", False), "identical or compared is not what"),
    "parting nowhere": (
        put(SAID, "divergence", {"index": 1, "margin": None}),
        "divergence is not where the lanes first differ",
    ),
    "negative margin": (
        put(SAID, "divergence", {"index": 1, "margin": -1}),
        "end, lanes, speculative, divergence: margin is -1",
    ),
}

DAMAGED_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda raw: b"", "this file is empty"),
    "cut off": (lambda raw: raw[:-20], "this file is cut off"),
    "only the mark of gzip": (lambda raw: raw[:2], "this file is cut off"),
    "a byte changed": (lambda raw: raw[:-6] + b"\0\0" + raw[-4:], "gzip data is damaged"),
    "something after it": (lambda raw: raw + b"more", "goes on after the end of its gzip data"),
    "a zip archive": (lambda raw: b"PK\3\4" + raw, "no valid JSON at line 1, column 1"),
    "a picture": (lambda raw: b"\x89PNG\r\n\x1a\n" + bytes(50), "no valid JSON"),
    "half of the JSON": (lambda raw: gzip.decompress(raw)[:500], "no valid JSON"),
    "not UTF-8": (lambda raw: b'{"schema": "\xff"}', "no valid JSON"),
    "half a surrogate pair": (lambda raw: b'{"schema": "\\ud800"}', "no valid JSON"),
    "not a number": (lambda raw: b'{"schema": NaN}', "no valid JSON at line 1, column 12"),
    "a number past all bounds": (lambda raw: b'{"schema": 1e999}', "no valid JSON"),
    "nested a million times": (lambda raw: b"[" * 1_000_000, "no valid JSON"),
    "a list": (lambda raw: b"[1, 2]", "this recording is a list, but it should be an object"),
    "null": (lambda raw: b"null", "this recording is null, but it should be an object"),
    "an empty object": (lambda raw: b"{}", "schema is missing"),
}
