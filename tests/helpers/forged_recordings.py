"""Recordings of the page, each made to look better or other than it was by a small edit.

FORGED: name: (recording, edit, a part of the sentence with which it is refused).
"""

from __future__ import annotations

import copy
import gzip
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import orjson
from malformed_recordings import Values, accepted_in_both_lists, part, put

from specviz.environment import ASSETS
from specviz.trace import digest_of

Edit: TypeAlias = Callable[[Values], object]

SETTINGS, REASONS = part("header", "settings"), part("end", "reasons")
JUDGED = ("accepted", "rejected")
SAMPLED, GREEDY, LOSES = "easy", "repetitive", "loses"


@cache
def _packed(name: str) -> bytes:
    return (ASSETS / "recordings" / f"{name}.json.gz").read_bytes()


def forged(name: str, edit: Edit) -> bytes:
    """The bytes of a recording after an edit, with a digest that fits it."""
    data = orjson.loads(gzip.decompress(_packed(name)))
    before = copy.deepcopy(data)
    edit(data)
    assert data != before, "the edit changes nothing"
    return orjson.dumps({**data, "digest": digest_of(data)})


def ours(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "speculative"]


def alone(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "baseline"]


def tokens(data: Values, *outcomes: str) -> Iterator[Values]:
    """All tokens with one of these outcomes, accepted ones in both lists of their round."""
    for r in data["rounds"]:
        yield from (t for t in r["drafted"] + r["emitted"] if t["outcome"] in outcomes)


def first(data: Values, outcome: str, where: Callable[[Values], bool] = lambda t: True) -> Values:
    return next(t for t in tokens(data, outcome) if where(t))


def refused(data: Values) -> Values:
    """A round in the middle of its lane with a rejected token, and ignored ones after it."""
    return next(r for r in ours(data)[3:] if r["drafted"][-1]["outcome"] == "ignored")


def all_kept(data: Values) -> Values:
    """A round in the middle of its lane whose drafts were all accepted."""
    return next(r for r in ours(data)[3:] if len(r["emitted"]) > len(r["drafted"]) > 0)


def without(r: Values, *outcomes: str) -> None:
    r["drafted"] = [t for t in r["drafted"] if t["outcome"] not in outcomes]


def call_it_a_bonus(r: Values) -> None:
    for field in ("q", "top_q", "top_residual", "soft_q"):
        r["emitted"][-1].pop(field, None)
    r["emitted"][-1]["outcome"] = "bonus"


def rejections_dropped(data: Values) -> None:
    for r in ours(data):
        if r["emitted"][-1]["outcome"] == "corrected":
            without(r, "rejected", "ignored")
            call_it_a_bonus(r)


def rejected_called_accepted(data: Values) -> None:
    """As if the first rejected draft and the token after it had been kept."""
    r = refused(data)
    kept = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    kept |= {"outcome": "accepted", "p": kept["q"], "u": 0.0}
    kept.pop("top_residual")
    r["emitted"].insert(-1, kept)
    without(r, "ignored")
    call_it_a_bonus(r)


def rounds_merged(data: Values) -> None:
    one, two = alone(data)[4:6]
    one["emitted"] += two["emitted"]
    remove(data, two)


def rounds_with_drafts_merged(data: Values) -> None:
    """Two rounds as one, in which everything was accepted."""
    one = all_kept(data)
    two = ours(data)[ours(data).index(one) + 1]
    own = one["emitted"].pop()
    one["emitted"] += [{**own, "outcome": "accepted"}, *two["emitted"]]
    one["drafted"] += [{**own, "outcome": "accepted"}, *two["drafted"]]
    remove(data, two)


def remove(data: Values, gone: Values) -> None:
    """Take a round away; the later ones of its lane follow on."""
    data["rounds"].remove(gone)
    for r in data["rounds"]:
        if r["lane"] == gone["lane"] and r["index"] > gone["index"]:
            r["index"] -= 1


def every(field: str, value: Any, *outcomes: str) -> Edit:
    def edit(data: Values) -> None:
        for token in tokens(data, *outcomes):
            token[field] = value

    return edit


def one(outcome: str, field: str, value: Any, where: Any = lambda t: True) -> Edit:
    return lambda data: first(data, outcome, where).__setitem__(field, value)


def halves(data: Values) -> None:
    for token in tokens(data, "accepted", "rejected", "corrected", "bonus"):
        token["p"] = 0.5
        if "q" in token:
            token["q"] = 0.5


def called_greedy(data: Values) -> None:
    """A sampled run at temperature 0, its probabilities as those of the softmax."""
    SETTINGS(data)["temperature"] = 0.0
    for r in data["rounds"]:
        for token in r["drafted"] + r["emitted"]:
            token |= {f"soft_{field}": token[field] for field in "pq" if field in token}
    data["end"] |= {"identical": True, "compared": 128}


def called_sampled(data: Values) -> None:
    SETTINGS(data)["temperature"] = 1.0
    data["end"] |= {"identical": None, "compared": 0}


def called_sampled_without_traces(data: Values) -> None:
    called_sampled(data)
    for r in data["rounds"]:
        for token in r["drafted"] + r["emitted"]:
            token.pop("soft_p", None)
            token.pop("soft_q", None)


def cut_to(count: int, **settings: Any) -> Edit:
    """The first rounds only; the end says what it said."""

    def edit(data: Values) -> None:
        data["rounds"] = data["rounds"][:count]
        SETTINGS(data).update(settings)

    return edit


def cut_to_fit(data: Values) -> None:
    """Both lanes cut to one length, which the settings then name."""
    kept, count = [], 0
    for r in ours(data)[:8]:
        kept.append(r)
        count += len(r["emitted"])
    data["rounds"] = sorted([*kept, *alone(data)[:count]], key=lambda r: r["clock"])
    SETTINGS(data)["max_new_tokens"] = count


def cut_by(reason: str, *stop: str) -> Edit:
    """A cut lane with another reason."""

    def edit(data: Values) -> None:
        data["rounds"] = data["rounds"][:90]
        REASONS(data).update(dict.fromkeys(REASONS(data), reason))
        SETTINGS(data)["stop"] = list(stop)

    return edit


def without_time(lane: str, *fields: str) -> Edit:
    """No time for some parts of all rounds of a lane; the clock follows."""

    def edit(data: Values) -> None:
        clock = 0.0
        for r in data["rounds"]:
            if r["lane"] == lane:
                r.update(dict.fromkeys(fields, 0.0))
                clock += r["draft_seconds"] + r["verify_seconds"] + r["overhead_seconds"]
                r["clock"] = clock

    return edit


def negative_time(data: Values) -> None:
    r = ours(data)[4]
    r["overhead_seconds"] -= 1.0


def with_wall(behind: float) -> Edit:
    """A wall clock that is `behind` the lane's own by some share."""

    def edit(data: Values) -> None:
        before = {
            lane: sum(data["header"]["prefill_seconds"][lane].values()) for lane in REASONS(data)
        }
        for r in data["rounds"]:
            r["wall"] = before[r["lane"]] + r["clock"] * (1 - behind)

    return edit


def wall_in_one_round(data: Values) -> None:
    with_wall(0.0)(data)
    del alone(data)[5]["wall"]


def corrected_to(**values: Any) -> Edit:
    return lambda data: refused(data)["emitted"][-1].update(values)


def corrected_as_rejected(data: Values) -> None:
    r = refused(data)
    gone = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    r["emitted"][-1] |= {"id": gone["id"], "p": gone["p"], "q": gone["q"]}


def corrected_below(data: Values) -> None:
    """A correction to a token of which q had more than p."""
    r = next(r for r in ours(data) if _wanted_less(r))
    r["emitted"][-1] |= _wanted_less(r)


def _wanted_less(r: Values) -> Values:
    own = r["emitted"][-1]
    if own["outcome"] != "corrected":
        return {}
    q = {c["id"]: c["probability"] for c in own["top_q"]}
    gone = next(t["id"] for t in r["drafted"] if t["outcome"] == "rejected")
    for choice in own["top_p"]:
        i, p = choice["id"], choice["probability"]
        if i != gone and q.get(i, 0.0) > p:
            return {"id": i, "p": p, "q": q[i]}
    return {}


def residual_changed(data: Values) -> None:
    r = next(r for r in ours(data) if len(r["emitted"][-1].get("top_residual", ())) == 5)
    gone = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    even = [{**choice, "probability": 0.01} for choice in gone["top_residual"]]
    gone["top_residual"] = r["emitted"][-1]["top_residual"] = even


def listed_twice(data: Values) -> None:
    top = first(data, "bonus", lambda t: len(t["top_p"]) > 1)["top_p"]
    top[1]["id"] = top[0]["id"]


def list_cut_short(data: Values) -> None:
    token = first(data, "bonus", lambda t: len(t["top_p"]) == 5 and t["top_p"][0]["id"] == t["id"])
    token["top_p"] = token["top_p"][:1]
    token["top_p"][0]["probability"] = token["p"] = min(token["p"], 0.9)


def parted(margin: float) -> Edit:
    """The last token of the target alone is another one; the end gives a margin."""

    def edit(data: Values) -> None:
        last = alone(data)[-1]["emitted"][0]
        one, two = last["top_p"][:2]
        last["top_p"][0] = {**two, "probability": one["probability"]}
        last["top_p"][1] = {**one, "probability": two["probability"]}
        last["id"] = two["id"]
        data["end"] |= {"identical": False, "divergence": {"index": 127, "margin": margin}}

    return edit


def parted_nowhere(data: Values) -> None:
    data["end"] |= {"identical": False, "divergence": {"index": 9, "margin": 0.1}}


def ended_by_a_common_token(data: Values) -> None:
    """Cut after a token that stands in the text before, as if it ended texts."""
    ids = [r["emitted"][0]["id"] for r in alone(data)]
    last = next(i for i in range(20, len(ids)) if ids[i] in ids[:i])
    data["rounds"] = [r for r in data["rounds"] if r["lane"] != "baseline" or r["index"] <= last]
    REASONS(data)["baseline"] = "eos"


def accepted_late(data: Values) -> None:
    """A draft that was kept although q was above p and the draw was high."""
    doubtful = first(data, "accepted", lambda t: t["p"] < t["q"] * 0.9)
    for token in tokens(data, "accepted"):
        if token["u"] == doubtful["u"] and token is not doubtful:
            token["u"] = 0.999
    doubtful["u"] = 0.999


def past_the_context(data: Values) -> None:
    """The target alone, which writes more than it can see."""
    data |= {"rounds": alone(data), "end": None}
    data["header"]["target"]["context"] = 100


FORGED: dict[str, tuple[str, Edit, str]] = {
    # drafts that are not there
    "ignored dropped": (SAMPLED, lambda d: without(refused(d), "ignored"), "5 were due"),
    "all ignored dropped": (
        LOSES,
        lambda d: [without(r, "ignored") for r in ours(d)],
        "drafted tokens where 5 were due",
    ),
    "rejections dropped": (SAMPLED, rejections_dropped, "drafted tokens where 5 were due"),
    "an accepted one dropped": (
        SAMPLED,
        lambda d: (all_kept(d)["drafted"].pop(0), all_kept(d)["emitted"].pop(0)),
        "4 drafted tokens where 5 were due",
    ),
    "gamma was larger": (SAMPLED, put(SETTINGS, "gamma", 8), "where 8 were due"),
    "gamma was larger in a loss": (LOSES, put(SETTINGS, "gamma", 6), "where 6 were due"),
    "gamma was smaller": (SAMPLED, put(SETTINGS, "gamma", 4), "where 4 may be"),
    "gamma adapts": (LOSES, put(SETTINGS, "gamma_policy", "heuristic"), "where 4 may be"),
    "longer text": (SAMPLED, put(SETTINGS, "max_new_tokens", 400), "of 400 tokens"),
    # outcomes
    "corrected called bonus": (
        SAMPLED,
        lambda d: call_it_a_bonus(refused(d)),
        "it must emit one token, corrected",
    ),
    "rejected called accepted": (SAMPLED, rejected_called_accepted, "and top_p says"),
    "bonus called corrected": (
        SAMPLED,
        lambda d: all_kept(d)["emitted"][-1].update(outcome="corrected", q=0.1),
        "it must emit one token, bonus",
    ),
    "rounds merged": (SAMPLED, rounds_merged, "it must emit one token, bonus"),
    "rounds with drafts merged": (SAMPLED, rounds_with_drafts_merged, "where 5 may be"),
    # verdicts
    "accepted against the draw": (
        SAMPLED,
        accepted_late,
        "it was accepted with u = 0.999",
    ),
    "rejected against the draw": (
        SAMPLED,
        one("rejected", "u", 0.0, lambda t: t["p"] > 0),
        "it was rejected with u = 0 and",
    ),
    "a draw of 1": (SAMPLED, one("rejected", "u", 1.0), "u is 1, but a draw is below 1"),
    "ignored of q 0": (SAMPLED, one("ignored", "q", 0.0), "q is 0, but a draft never draws"),
    # p and q
    "greedy halves": (GREEDY, halves, "p is 0.5, but in a greedy run it is 0 or 1"),
    "bonus of p 0": (SAMPLED, every("p", 0.0, "bonus"), "p is 0, but no token of probability 0"),
    "corrected of p 0": (SAMPLED, one("corrected", "p", 0.0), "p is 0, but no token of"),
    "more of p": (SAMPLED, one("bonus", "p", 0.999999), "p is 0.999999 and top_p says"),
    "more of p in both lists": (
        LOSES,
        accepted_in_both_lists("p", 0.999999),
        "p is 0.999999 and top_p says",
    ),
    "less of q": (LOSES, one("ignored", "q", 0.001, lambda t: t["q"] > 0.1), "and top_q says"),
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
        "p is 0.3, yet top_p does not list this token",
    ),
    "greedy, yet not the first": (
        GREEDY,
        lambda d: [t.update(soft_p=0.01) for t in list(tokens(d, "bonus"))],
        "p is 1 and top_p begins with a likelier token",
    ),
    "greedy, yet rejected the first": (
        GREEDY,
        lambda d: (
            first(d, "rejected").update(soft_p=0.9),
            first(d, "rejected")["top_p"][0].update(id=first(d, "rejected")["id"], probability=0.9),
            [c.update(probability=0.001) for c in first(d, "rejected")["top_p"][1:]],
        ),
        "p is 0 and top_p begins with this token",
    ),
    # beta
    "beta 1 beside rejections": (LOSES, every("beta", 1.0, *JUDGED), "with this p and q it is at"),
    "beta 1 of a greedy rejection": (GREEDY, every("beta", 1.0, *JUDGED), "it is at most 0"),
    "beta 0": (SAMPLED, every("beta", 0.0, *JUDGED), "beta is 0, less than"),
    "beta below the lists": (
        SAMPLED,
        lambda d: [t.update(beta=min(t["p"], t["q"])) for t in list(tokens(d, *JUDGED))],
        "less than top_p and top_q have in common",
    ),
    # what was drawn after a rejection
    "corrected to the rejected": (
        LOSES,
        corrected_as_rejected,
        "it is the token that was rejected",
    ),
    "corrected to less": (LOSES, corrected_below, "p is not above q, but a correction"),
    "another residual": (SAMPLED, residual_changed, "top_residual does not agree"),
    "a residual of its own": (
        SAMPLED,
        corrected_to(top_residual=[{"id": 1, "text": "a", "probability": 1.0}]),
        "top_residual is not that of the rejected token at the same place",
    ),
    "another top_p of its own": (
        SAMPLED,
        corrected_to(top_p=[{"id": 1, "text": "a", "probability": 1.0}]),
        "top_p",
    ),
    # lists
    "listed twice": (SAMPLED, listed_twice, "top_p lists a token twice"),
    "list cut short": (SAMPLED, list_cut_short, "top_p holds every possible token and does not"),
    "no list": (SAMPLED, lambda d: first(d, "bonus").pop("top_p"), "top_p is missing from a token"),
    "a list that cannot be": (
        SAMPLED,
        one("ignored", "top_p", [{"id": 1, "text": "a", "probability": 1.0}]),
        "top_p cannot be known of a token that was ignored",
    ),
    # sampling
    "top-k 3": (SAMPLED, put(SETTINGS, "top_k", 3), "entries although top_k is 3"),
    "top-k 5": (LOSES, put(SETTINGS, "top_k", 5), "every possible token and does not add up to 1"),
    "top-p 0.2": (LOSES, put(SETTINGS, "top_p", 0.2), "too little to be kept where top_p is 0.2"),
    "top-k and top-p": (
        LOSES,
        lambda d: SETTINGS(d).update(top_k=50, top_p=0.9),
        "too little to be kept",
    ),
    "temperature 0": (SAMPLED, put(SETTINGS, "temperature", 0.0), "soft_p is missing although"),
    "sampled called greedy": (SAMPLED, called_greedy, "but in a greedy run it is 0 or 1"),
    "temperature 1": (GREEDY, called_sampled, "is there although the run is not greedy"),
    "greedy called sampled": (GREEDY, called_sampled_without_traces, "is 1 and top_"),
    # the header
    "drafts of nobody": (SAMPLED, put(part("header"), "draft", None), "draft must be a model"),
    "drafts for free": (
        SAMPLED,
        lambda d: d["header"]["prefill_seconds"]["speculative"].pop("draft"),
        "prefill_seconds are not those of the models that run",
    ),
    "a short context": (
        SAMPLED,
        put(part("header", "target"), "context", 100),
        "have room",
    ),
    "past the context": (SAMPLED, past_the_context, "after the target's context is full"),
    "a short context of the draft": (
        SAMPLED,
        lambda d: [d["header"][m].update(context=c) for m, c in (("target", 512), ("draft", 100))],
        "have room",
    ),
    # times
    "a round of no time": (
        SAMPLED,
        without_time("speculative", "draft_seconds", "verify_seconds", "overhead_seconds"),
        "verify_seconds is 0, but every pass takes time",
    ),
    "drafts in no time": (
        SAMPLED,
        without_time("speculative", "draft_seconds"),
        "draft_seconds is 0, but drafting",
    ),
    "negative time": (SAMPLED, negative_time, "overhead_seconds is -"),
    "a wall clock behind": (SAMPLED, with_wall(0.1), "the clock, which counts less, by"),
    "a wall clock at times": (SAMPLED, wall_in_one_round, "wall must be in all rounds of a lane"),
    # ends
    "a lucky prefix": (SAMPLED, cut_to(60), "of 128 tokens"),
    "a lucky prefix, renamed": (SAMPLED, cut_to_fit, "have room"),
    "a prefix by a stop text": (
        SAMPLED,
        cut_by("stop", "no such text"),
        "which holds no stop text",
    ),
    "a prefix by a context": (LOSES, cut_by("context"), "context"),
    "past a stop text": (SAMPLED, put(SETTINGS, "stop", ["e"]), "goes on after a stop text"),
    "an end that is in the text": (SAMPLED, ended_by_a_common_token, "which reasons says ends a"),
    "a full context at full length": (
        SAMPLED,
        lambda d: REASONS(d).update(baseline="context"),
        "which has all of 128 tokens",
    ),
    # the comparison
    "parted nowhere": (GREEDY, parted_nowhere, "identical is false and the tokens"),
    "parted by a hair": (GREEDY, parted(0.0), "margin is not that of the token's two likeliest"),
}
