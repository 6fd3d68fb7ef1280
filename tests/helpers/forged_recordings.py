"""Recordings of the page, each with a small edit of its JSON values that makes the run look better
or different.

EDITED: name: (recording, edit). Each is refused, or differs from a rerun.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from filed import emitted
from filed import tokens as tokens_of
from malformed_recordings import SETTINGS, Edit, Values, part, put, shift, token
from places import ROOT

SAMPLED = "easy"
GREEDY = "repetitive"
LOSES = "loses"
REASONS = part("end", "reasons")
AGREEMENT = part("end", "lanes", "speculative")
JUDGED = ("accepted", "rejected")


def ours(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "speculative"]


def alone(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "baseline"]


def tokens(data: Values, *outcomes: str) -> Iterator[Values]:
    """Yield all tokens with one of these outcomes."""
    for r in data["rounds"]:
        yield from (t for t in tokens_of(r) if t["outcome"] in outcomes)


def first(data: Values, outcome: str, where: Callable[[Values], bool] = lambda t: True) -> Values:
    return next(t for t in tokens(data, outcome) if where(t))


def refused(data: Values) -> Values:
    """A round in the middle of its lane with a rejected token and ignored ones after it."""
    return next(r for r in ours(data)[3:] if r["drafted"][-1]["outcome"] == "ignored")


def all_kept(data: Values) -> Values:
    """A round in the middle of its lane whose drafts were all accepted."""
    return next(r for r in ours(data)[3:] if r["drafted"] and r["last"]["outcome"] == "bonus")


def without(r: Values, *outcomes: str) -> None:
    r["drafted"] = [t for t in r["drafted"] if t["outcome"] not in outcomes]


def call_it_a_bonus(r: Values) -> None:
    for field in ("q", "top_q", "top_residual", "soft_q"):
        r["last"].pop(field, None)
    r["last"]["outcome"] = "bonus"


def rejections_dropped(data: Values) -> None:
    for r in ours(data):
        if r["last"] and r["last"]["outcome"] == "corrected":
            without(r, "rejected", "ignored")
            call_it_a_bonus(r)


def rejected_called_accepted(data: Values) -> None:
    """Claim that a rejected last draft and the token after it were kept."""
    r = next(r for r in ours(data) if r["drafted"] and r["drafted"][-1]["outcome"] == "rejected")
    kept = r["drafted"][-1]
    kept |= {"outcome": "accepted", "p": kept["q"], "u": 0.0}
    kept.pop("top_residual")
    call_it_a_bonus(r)
    # The lane must not have more tokens than were asked for.
    remove(data, ours(data)[-1])
    REASONS(data)["speculative"] = "stopped"


def rounds_merged(data: Values) -> None:
    one, two = alone(data)[4:6]
    one |= {"drafted": [{**one["last"], "outcome": "accepted"}], "last": two["last"]}
    remove(data, two)


def rounds_with_drafts_merged(data: Values) -> None:
    """Merge two rounds into one, in which everything was accepted."""
    one = all_kept(data)
    two = ours(data)[ours(data).index(one) + 1]
    one["drafted"] += [{**one["last"], "outcome": "accepted"}, *two["drafted"]]
    one["last"] = two["last"]
    remove(data, two)


def remove(data: Values, gone: Values) -> None:
    """Remove a round, and renumber the later ones of its lane."""
    data["rounds"].remove(gone)
    for r in data["rounds"]:
        if r["lane"] == gone["lane"] and r["index"] > gone["index"]:
            r["index"] -= 1


def every(field: str, value: Any, *outcomes: str) -> Edit:
    def edit(data: Values) -> None:
        for t in tokens(data, *outcomes):
            t[field] = value

    return edit


def one(outcome: str, field: str, value: Any, where: Any = lambda t: True) -> Edit:
    return lambda data: first(data, outcome, where).__setitem__(field, value)


def halves(data: Values) -> None:
    for t in tokens(data, "accepted", "rejected", "corrected", "bonus"):
        t["p"] = 0.5
        if "q" in t:
            t["q"] = 0.5


def called_greedy(data: Values) -> None:
    """Claim temperature 0 of a sampled run, with its probabilities as those of the softmax."""
    SETTINGS(data)["temperature"] = 0.0
    for r in data["rounds"]:
        for t in tokens_of(r):
            t |= {f"soft_{field}": t[field] for field in "pq" if field in t}
    data["end"]["lanes"] = {"speculative": {"identical": True, "compared": 128, "divergence": None}}


def called_sampled(data: Values, *fields: str) -> None:
    """Claim that a greedy run was sampled. fields: of tokens, which are removed."""
    SETTINGS(data)["temperature"] = 1.0
    del data["end"]["lanes"]
    for r in data["rounds"]:
        for t in tokens_of(r):
            for field in fields:
                t.pop(field, None)


def cut_to_fit(data: Values) -> None:
    """Cut both lanes after a rejection, and ask for that length: a real last round would draft
    less."""
    kept = []
    count = 0
    for r in ours(data):
        kept.append(r)
        count += len(emitted(r))
        if len(kept) >= 8 and r["last"]["outcome"] == "corrected":
            break
    data["rounds"] = sorted([*kept, *alone(data)[:count]], key=lambda r: r["clock"])
    SETTINGS(data)["max_new_tokens"] = count


def cut_by(reason: str, *stop: str) -> Edit:
    """Cut the run, with another reason."""

    def edit(data: Values) -> None:
        data["rounds"] = data["rounds"][:90]
        REASONS(data).update(dict.fromkeys(REASONS(data), reason))
        SETTINGS(data)["stop"] = list(stop)

    return edit


def corrected_to(**values: Any) -> Edit:
    return lambda data: refused(data)["last"].update(values)


def corrected_as_rejected(data: Values) -> None:
    r = refused(data)
    gone = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    r["last"] |= {"id": gone["id"], "p": gone["p"], "q": gone["q"]}


def corrected_below(data: Values) -> None:
    """Correct to a token that has more of q than of p."""
    r = next(r for r in ours(data) if _wanted_less(r))
    r["last"] |= _wanted_less(r)


def _wanted_less(r: Values) -> Values:
    own = r["last"]
    if own is None or own["outcome"] != "corrected":
        return {}
    q = {c["id"]: c["probability"] for c in own["top_q"]}
    gone = next(t["id"] for t in r["drafted"] if t["outcome"] == "rejected")
    for choice in own["top_p"]:
        i = choice["id"]
        p = choice["probability"]
        if i != gone and q.get(i, 0.0) > p:
            return {"id": i, "p": p, "q": q[i]}
    return {}


def residual_changed(data: Values) -> None:
    r = next(r for r in ours(data) if len((r["last"] or {}).get("top_residual", ())) == 5)
    gone = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    even = [{**choice, "probability": 0.01} for choice in gone["top_residual"]]
    gone["top_residual"] = r["last"]["top_residual"] = even


def listed_twice(data: Values) -> None:
    top = first(data, "bonus", lambda t: len(t["top_p"]) > 1)["top_p"]
    top[1]["id"] = top[0]["id"]


def list_cut_short(data: Values) -> None:
    t = first(data, "bonus", lambda t: len(t["top_p"]) == 5 and t["top_p"][0]["id"] == t["id"])
    t["top_p"] = t["top_p"][:1]
    t["top_p"][0]["probability"] = t["p"] = min(t["p"], 0.9)


def parted_by_a_hair(data: Values) -> None:
    """Exchange the last token of the target alone with its runner-up, and claim a tie."""
    last = alone(data)[-1]["last"]
    best, second = last["top_p"][:2]
    last["top_p"][0] = {**second, "probability": best["probability"]}
    last["top_p"][1] = {**best, "probability": second["probability"]}
    last["id"] = second["id"]
    AGREEMENT(data).update(identical=False, divergence={"index": 127, "margin": 0.0})


def ended_by_a_common_token(data: Values) -> None:
    """Cut after a token that also occurs before, as if it ended texts."""
    ids = [r["last"]["id"] for r in alone(data)]
    last = next(i for i in range(20, len(ids)) if ids[i] in ids[:i])
    data["rounds"] = [r for r in data["rounds"] if r["lane"] != "baseline" or r["index"] <= last]
    REASONS(data)["baseline"] = "eos"


def accepted_late(data: Values) -> None:
    """Accept a draft although q was above p and the draw was high."""
    doubtful = first(data, "accepted", lambda t: t["p"] < t["q"] * 0.9)
    for t in tokens(data, "accepted"):
        if t["u"] == doubtful["u"] and t is not doubtful:
            t["u"] = 0.999
    doubtful["u"] = 0.999


def past_the_context(data: Values) -> None:
    """The target alone writes more than it can see."""
    data.update(rounds=alone(data), end=None)
    data["header"]["target"]["context"] = 100


EDITED: dict[str, tuple[str, Edit]] = {
    "ignored dropped": (SAMPLED, lambda d: without(refused(d), "ignored")),
    "all ignored dropped": (LOSES, lambda d: [without(r, "ignored") for r in ours(d)]),
    "rejections dropped": (SAMPLED, rejections_dropped),
    "an accepted one dropped": (
        SAMPLED,
        lambda d: all_kept(d)["drafted"].pop(0),
    ),
    "gamma was larger": (SAMPLED, put(SETTINGS, "gamma", 8)),
    "gamma was larger in a loss": (LOSES, put(SETTINGS, "gamma", 6)),
    "gamma was smaller": (SAMPLED, put(SETTINGS, "gamma", 4)),
    "gamma adapts": (LOSES, put(SETTINGS, "gamma_policy", "heuristic")),
    "longer text": (SAMPLED, put(SETTINGS, "max_new_tokens", 160)),
    "corrected called bonus": (SAMPLED, lambda d: call_it_a_bonus(refused(d))),
    "rejected called accepted": (SAMPLED, rejected_called_accepted),
    "bonus called corrected": (
        SAMPLED,
        lambda d: all_kept(d)["last"].update(outcome="corrected", q=0.1),
    ),
    "rounds merged": (SAMPLED, rounds_merged),
    "rounds with drafts merged": (SAMPLED, rounds_with_drafts_merged),
    "accepted against the draw": (SAMPLED, accepted_late),
    "rejected against the draw": (SAMPLED, one("rejected", "u", 0.0, lambda t: t["p"] > 0)),
    "a draw of 1": (SAMPLED, one("rejected", "u", 1.0)),
    "ignored of q 0": (SAMPLED, one("ignored", "q", 0.0)),
    "greedy halves": (GREEDY, halves),
    "bonus of p 0": (SAMPLED, every("p", 0.0, "bonus")),
    "corrected of p 0": (SAMPLED, one("corrected", "p", 0.0)),
    "more of p": (SAMPLED, one("bonus", "p", 0.999999)),
    "more of an accepted p": (LOSES, put(token("accepted"), "p", 0.999999)),
    "less of q": (LOSES, one("ignored", "q", 0.001, lambda t: t["q"] > 0.1)),
    "unlisted": (
        LOSES,
        one(
            "rejected",
            "p",
            0.3,
            lambda t: (
                t["q"] > 0.35 and t["id"] not in [c["id"] for c in t["top_p"]] and t["u"] > 0.9
            ),
        ),
    ),
    "greedy, yet not the first": (
        GREEDY,
        lambda d: [t.update(soft_p=0.01) for t in list(tokens(d, "bonus"))],
    ),
    "greedy, yet rejected the first": (
        GREEDY,
        lambda d: (
            first(d, "rejected").update(soft_p=0.9),
            first(d, "rejected")["top_p"][0].update(id=first(d, "rejected")["id"], probability=0.9),
            [c.update(probability=0.001) for c in first(d, "rejected")["top_p"][1:]],
        ),
    ),
    "beta 1 beside rejections": (LOSES, every("beta", 1.0, *JUDGED)),
    "beta 1 of a greedy rejection": (GREEDY, every("beta", 1.0, *JUDGED)),
    "beta 0": (SAMPLED, every("beta", 0.0, *JUDGED)),
    "beta below the lists": (
        SAMPLED,
        lambda d: [t.update(beta=min(t["p"], t["q"])) for t in list(tokens(d, *JUDGED))],
    ),
    "corrected to the rejected": (LOSES, corrected_as_rejected),
    "corrected to less": (LOSES, corrected_below),
    "another residual": (SAMPLED, residual_changed),
    "a residual of its own": (
        SAMPLED,
        corrected_to(top_residual=[{"id": 1, "text": "a", "probability": 1.0}]),
    ),
    "another top_p of its own": (
        SAMPLED,
        corrected_to(top_p=[{"id": 1, "text": "a", "probability": 1.0}]),
    ),
    "listed twice": (SAMPLED, listed_twice),
    "list cut short": (SAMPLED, list_cut_short),
    "no list": (SAMPLED, lambda d: first(d, "bonus").pop("top_p")),
    "a list that cannot be": (
        SAMPLED,
        one("ignored", "top_p", [{"id": 1, "text": "a", "probability": 1.0}]),
    ),
    "top-k 3": (SAMPLED, put(SETTINGS, "top_k", 3)),
    "top-k 5": (LOSES, put(SETTINGS, "top_k", 5)),
    "top-p 0.2": (LOSES, put(SETTINGS, "top_p", 0.2)),
    "top-k and top-p": (LOSES, lambda d: SETTINGS(d).update(top_k=50, top_p=0.9)),
    "temperature 0": (SAMPLED, put(SETTINGS, "temperature", 0.0)),
    "sampled called greedy": (SAMPLED, called_greedy),
    "temperature 1": (GREEDY, called_sampled),
    "greedy called sampled": (GREEDY, lambda d: called_sampled(d, "soft_p", "soft_q")),
    "drafts of nobody": (SAMPLED, put(part("header", "drafts"), "speculative", None)),
    "drafts for free": (
        SAMPLED,
        lambda d: d["header"]["prefill_seconds"]["speculative"].pop("draft"),
    ),
    "a short context": (SAMPLED, put(part("header", "target"), "context", 100)),
    "past the context": (SAMPLED, past_the_context),
    "a short context of the draft": (
        SAMPLED,
        lambda d: (
            d["header"]["target"].update(context=512),
            d["header"]["drafts"]["speculative"].update(context=100),
        ),
    ),
    "negative time": (SAMPLED, shift(lambda d: ours(d)[4], "overhead_seconds", -1.0)),
    "a lucky prefix": (SAMPLED, lambda d: d.update(rounds=d["rounds"][:60])),
    "a lucky prefix, renamed": (SAMPLED, cut_to_fit),
    "a prefix by a stop text": (SAMPLED, cut_by("stop", "no such text")),
    "a prefix by a context": (LOSES, cut_by("context")),
    "past a stop text": (SAMPLED, put(SETTINGS, "stop", ["e"])),
    "an end that is in the text": (SAMPLED, ended_by_a_common_token),
    "a full context at full length": (SAMPLED, lambda d: REASONS(d).update(baseline="context")),
    "parted nowhere": (
        GREEDY,
        lambda d: AGREEMENT(d).update(identical=False, divergence={"index": 9, "margin": 0.1}),
    ),
    "parted by a hair": (GREEDY, parted_by_a_hair),
    # what no rule could tell
    "another seed": (SAMPLED, put(SETTINGS, "seed", 3)),
    "another text": (SAMPLED, one("ignored", "text", " gold")),
    "another word": (GREEDY, lambda d: ours(d)[5]["drafted"][-1].update(id=7, text=" a")),
    "another prompt": (SAMPLED, put(part("header"), "prompt", "Once upon a time")),
    "other ids of the prompt": (SAMPLED, lambda d: d["header"]["prompt_ids"].reverse()),
    "another target": (SAMPLED, put(part("header", "target"), "name", "org/huge")),
    "a larger target": (SAMPLED, put(part("header", "target"), "parameters", 70_000_000_000)),
    "a likelier runner-up": (LOSES, lambda d: first(d, "bonus")["top_p"][1].update(text=" king")),
    "a higher beta": (SAMPLED, one("rejected", "beta", 0.75)),
    "another early exit": (LOSES, put(SETTINGS, "drafter", "ngram")),
}


@cache
def recording(name: str) -> bytes:
    """The JSON of a recording of the built-in pair that was made for these tests."""
    data = orjson.loads(gzip.decompress(path_of(name).read_bytes()))
    del data["digest"]
    return orjson.dumps(data)


def path_of(name: str) -> Path:
    return ROOT / "tests" / "runs" / "recorded" / f"{name}.json.gz"


def edited(name: str) -> bytes:
    """The JSON of a recording after an edit, without a digest, which is optional."""
    original, edit = EDITED[name]
    data = orjson.loads(recording(original))
    edit(data)
    raw = orjson.dumps(data)
    assert raw != recording(original), "the edit changes nothing"
    return raw
