"""Recordings of the page, each made to look better or other than it was by a small edit.

FORGED: name: (recording, edit, a part of the sentence with which it is refused).
"""

from __future__ import annotations

import gzip
from functools import cache

import orjson
from forgeries import (
    JUDGED,
    REASONS,
    SETTINGS,
    Edit,
    accepted_late,
    all_kept,
    call_it_a_bonus,
    called_greedy,
    called_sampled,
    called_sampled_without_traces,
    corrected_as_rejected,
    corrected_below,
    corrected_to,
    cut_by,
    cut_to,
    cut_to_fit,
    ended_by_a_common_token,
    every,
    first,
    halves,
    list_cut_short,
    listed_twice,
    negative_time,
    one,
    ours,
    parted,
    parted_nowhere,
    past_the_context,
    refused,
    rejected_called_accepted,
    rejections_dropped,
    residual_changed,
    rounds_merged,
    rounds_with_drafts_merged,
    tokens,
    wall_in_one_round,
    with_wall,
    without,
    without_time,
)
from malformed_recordings import accepted_in_both_lists, part, put

from specviz.environment import ASSETS
from specviz.runs.trace import digest_of

SAMPLED, GREEDY, LOSES = "easy", "repetitive", "loses"


@cache
def recording(name: str) -> bytes:
    """The JSON of a recording of the page."""
    return gzip.decompress((ASSETS / "recordings" / f"{name}.json.gz").read_bytes())


def forged(name: str, edit: Edit) -> bytes:
    """The JSON of a recording after an edit, with a digest that fits it."""
    data = orjson.loads(recording(name))
    edit(data)
    assert data != orjson.loads(recording(name)), "the edit changes nothing"
    return orjson.dumps({**data, "digest": digest_of(data)})


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
    "longer text": (SAMPLED, put(SETTINGS, "max_new_tokens", 400), "where 5 were due"),
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
