"""Recordings of the page, each made to look better or other than it was by a small edit.

EDITED: name: (recording, edit). Each is refused, or is not what a second run gives.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

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
    without,
)
from malformed_recordings import part, put, token
from places import ROOT

from specviz.runs.trace import digest_of

SAMPLED, GREEDY, LOSES = "easy", "repetitive", "loses"


@cache
def recording(name: str) -> bytes:
    """The JSON of a recording of the built-in pair that was made for these tests."""
    return gzip.decompress(path_of(name).read_bytes())


def path_of(name: str) -> Path:
    return ROOT / "tests" / "runs" / "recorded" / f"{name}.json.gz"


def edited(name: str) -> bytes:
    """The JSON of a recording after an edit, with a digest that fits it."""
    original, edit = EDITED[name]
    data = orjson.loads(recording(original))
    edit(data)
    assert data != orjson.loads(recording(original)), "the edit changes nothing"
    return orjson.dumps({**data, "digest": digest_of(data)})


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
    "greedy called sampled": (GREEDY, called_sampled_without_traces),
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
    "negative time": (SAMPLED, negative_time),
    "a lucky prefix": (SAMPLED, cut_to(60)),
    "a lucky prefix, renamed": (SAMPLED, cut_to_fit),
    "a prefix by a stop text": (SAMPLED, cut_by("stop", "no such text")),
    "a prefix by a context": (LOSES, cut_by("context")),
    "past a stop text": (SAMPLED, put(SETTINGS, "stop", ["e"])),
    "an end that is in the text": (SAMPLED, ended_by_a_common_token),
    "a full context at full length": (SAMPLED, lambda d: REASONS(d).update(baseline="context")),
    "parted nowhere": (GREEDY, parted_nowhere),
    "parted by a hair": (GREEDY, parted(0.0)),
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
