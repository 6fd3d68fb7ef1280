"""Small edits of a recording's JSON values that make a run look better, or other, than it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import filed
from malformed_recordings import Values, part

Edit: TypeAlias = Callable[[Values], object]

SETTINGS, REASONS = part("header", "lanes", "speculative"), part("end", "reasons")
AGREEMENT = part("end", "lanes", "speculative")
JUDGED = ("accepted", "rejected")


def ours(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "speculative"]


def alone(data: Values) -> list[Values]:
    return [r for r in data["rounds"] if r["lane"] == "baseline"]


def tokens(data: Values, *outcomes: str) -> Iterator[Values]:
    """All tokens with one of these outcomes."""
    for r in data["rounds"]:
        yield from (t for t in filed.tokens(r) if t["outcome"] in outcomes)


def first(data: Values, outcome: str, where: Callable[[Values], bool] = lambda t: True) -> Values:
    return next(t for t in tokens(data, outcome) if where(t))


def refused(data: Values) -> Values:
    """A round in the middle of its lane with a rejected token, and ignored ones after it."""
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
    """As if the last draft of a round, which was rejected, and the token after it had been kept."""
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
    """Two rounds as one, in which everything was accepted."""
    one = all_kept(data)
    two = ours(data)[ours(data).index(one) + 1]
    one["drafted"] += [{**one["last"], "outcome": "accepted"}, *two["drafted"]]
    one["last"] = two["last"]
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
        for token in filed.tokens(r):
            token |= {f"soft_{field}": token[field] for field in "pq" if field in token}
    data["end"]["lanes"] = {"speculative": {"identical": True, "compared": 128, "divergence": None}}


def called_sampled(data: Values) -> None:
    SETTINGS(data)["temperature"] = 1.0
    del data["end"]["lanes"]


def called_sampled_without_traces(data: Values) -> None:
    called_sampled(data)
    for r in data["rounds"]:
        for token in filed.tokens(r):
            token.pop("soft_p", None)
            token.pop("soft_q", None)


def cut_to(count: int, **settings: Any) -> Edit:
    """The first rounds only; the end says what it said."""

    def edit(data: Values) -> None:
        data["rounds"] = data["rounds"][:count]
        SETTINGS(data).update(settings)

    return edit


def cut_to_fit(data: Values) -> None:
    """Both lanes cut to one length, which the settings then name, behind a rejection: a real last
    round would not have drafted so many."""
    kept, count = [], 0
    for r in ours(data):
        kept.append(r)
        count += len(filed.emitted(r))
        if len(kept) >= 8 and r["last"]["outcome"] == "corrected":
            break
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
    return lambda data: refused(data)["last"].update(values)


def corrected_as_rejected(data: Values) -> None:
    r = refused(data)
    gone = next(t for t in r["drafted"] if t["outcome"] == "rejected")
    r["last"] |= {"id": gone["id"], "p": gone["p"], "q": gone["q"]}


def corrected_below(data: Values) -> None:
    """A correction to a token of which q had more than p."""
    r = next(r for r in ours(data) if _wanted_less(r))
    r["last"] |= _wanted_less(r)


def _wanted_less(r: Values) -> Values:
    own = r["last"]
    if own is None or own["outcome"] != "corrected":
        return {}
    q = {c["id"]: c["probability"] for c in own["top_q"]}
    gone = next(t["id"] for t in r["drafted"] if t["outcome"] == "rejected")
    for choice in own["top_p"]:
        i, p = choice["id"], choice["probability"]
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
    token = first(data, "bonus", lambda t: len(t["top_p"]) == 5 and t["top_p"][0]["id"] == t["id"])
    token["top_p"] = token["top_p"][:1]
    token["top_p"][0]["probability"] = token["p"] = min(token["p"], 0.9)


def parted(margin: float) -> Edit:
    """The last token of the target alone is another one; the end gives a margin."""

    def edit(data: Values) -> None:
        last = alone(data)[-1]["last"]
        one, two = last["top_p"][:2]
        last["top_p"][0] = {**two, "probability": one["probability"]}
        last["top_p"][1] = {**one, "probability": two["probability"]}
        last["id"] = two["id"]
        AGREEMENT(data).update(identical=False, divergence={"index": 127, "margin": margin})

    return edit


def parted_nowhere(data: Values) -> None:
    AGREEMENT(data).update(identical=False, divergence={"index": 9, "margin": 0.1})


def ended_by_a_common_token(data: Values) -> None:
    """Cut after a token that stands in the text before, as if it ended texts."""
    ids = [r["last"]["id"] for r in alone(data)]
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
