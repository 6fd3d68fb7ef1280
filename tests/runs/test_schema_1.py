"""Recordings of schema 1 are upgraded to schema 2, or rejected with a sentence."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from specviz import Trace
from specviz.base.errors import TraceError
from specviz.runs.recording import read_recording
from specviz.runs.trace import digest_of

OLD = Path(__file__).parent / "recorded" / "schema-1.json.gz"


def old() -> dict[str, Any]:
    data: dict[str, Any] = orjson.loads(gzip.decompress(OLD.read_bytes()))
    assert data["schema"] == 1
    return data


def read(data: dict[str, Any]) -> Trace:
    return read_recording(orjson.dumps({**data, "digest": digest_of(data)}))


def named(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the speculative lane of a run to "one"."""
    header = data["header"]
    end = data["end"]
    header |= {"lanes": {"one": header["settings"]}, "drafts": {"one": header["draft"]}}
    for by_lane in (header["prefill_seconds"], header["lane_threads"], end["reasons"]):
        by_lane["one"] = by_lane.pop("speculative")
    end["lanes"] = {"one": {name: end[name] for name in ("identical", "compared", "divergence")}}
    for r in data["rounds"]:
        r["lane"] = "one" if r["lane"] == "speculative" else r["lane"]
    return data


def test_an_old_file_is_the_run_that_it_was() -> None:
    assert read(old()) == Trace.load(OLD.with_name("greedy.json.gz"))


def test_lanes_with_names_keep_them() -> None:
    trace = read(named(old()))
    assert trace.lanes == ("one", "baseline") and trace.end is not None
    assert trace.end.agreement("one").identical is True
    assert trace.header.settings_of("one") == read(old()).header.settings


def test_a_run_that_was_stopped_compares_nothing() -> None:
    data = old()
    data["rounds"] = data["rounds"][:4]
    data["end"] = {"reasons": {"speculative": "stopped", "baseline": "stopped"}}
    data["end"] |= {"identical": None, "compared": 0, "divergence": None}
    trace = read(data)
    assert trace.end is not None and trace.end.lanes is None


def kept(data: dict[str, Any]) -> Any:
    return next(r for r in data["rounds"] if r["drafted"] and len(r["emitted"]) > 1)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no settings": (lambda d: d["header"].pop("settings"), "is incomplete"),
    "a header as list": (lambda d: d.update(header=[]), "is incomplete"),
    "rounds of numbers": (lambda d: d.update(rounds=[1]), "is incomplete"),
    "an end without reasons": (lambda d: d["end"].pop("reasons"), "reasons is missing"),
    "another accepted token": (
        lambda d: kept(d)["emitted"][0].update(id=0),
        "it emitted other tokens than its accepted ones and one more",
    ),
    "two more": (lambda d: kept(d)["emitted"].append(kept(d)["emitted"][-1]), "and one more"),
    "other settings": (
        lambda d: named(d)["header"].update(settings={**d["header"]["settings"], "gamma": 1}),
        "settings differs from the first lane's",
    ),
    "another agreement": (
        lambda d: named(d)["end"].update(identical=False),
        "identical differs from the first lane's",
    ),
    "an end of no lanes": (
        lambda d: named(d)["end"].update(lanes={}),
        "identical differs from the first lane's",
    ),
    "something new": (
        lambda d: d["rounds"][0].update(rank=1),
        "the field rank is not part of the schema",
    ),
}


@pytest.mark.parametrize(("edit", "sentence"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_in_an_old_file_is_a_sentence(
    edit: Callable[[dict[str, Any]], Any], sentence: str
) -> None:
    data = old()
    edit(data)
    with pytest.raises(TraceError, match=sentence):
        read(data)
