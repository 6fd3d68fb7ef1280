"""The tables of a run match its rounds, and no cell can act as a formula."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import replace

import pytest
from toy_recordings import GREEDY, SAMPLED, recorded

from specviz import Settings, Trace, compute_metrics
from specviz.core.lanes import LANES
from specviz.runs.tables import ROUND_COLUMNS, TOKEN_COLUMNS, rounds_csv, tokens_csv


def rows(table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table, newline="")))


def with_text(text: str) -> Trace:
    """A run in which every token has this text."""
    trace = recorded(SAMPLED)
    rounds = [
        replace(
            r,
            drafted=[replace(t, text=text) for t in r.drafted],
            last=r.last and replace(r.last, text=text),
        )
        for r in trace.rounds
    ]
    return Trace(trace.header, rounds, trace.end)


@pytest.mark.parametrize("settings", [SAMPLED, GREEDY, replace(GREEDY, max_new_tokens=0)], ids=str)
def test_the_tables_count_what_the_metrics_count(settings: Settings):
    trace = recorded(settings)
    metrics = compute_metrics(trace)
    tokens = rows(tokens_csv(trace))
    rounds = rows(rounds_csv(trace))
    seen = Counter(row["outcome"] for row in tokens if row["lane"] == "speculative")
    assert {outcome: seen[outcome] for outcome in metrics.counts} == metrics.counts
    ours = [row for row in rounds if row["lane"] == "speculative"]
    assert len(ours) == metrics.rounds and len(rounds) == len(trace.rounds)
    for name in ("accepted", "rejected", "ignored"):
        assert sum(int(row[name]) for row in ours) == metrics.counts[name]
    assert sum(int(row["drafted"]) for row in ours) == metrics.drafted
    assert sum(int(row["emitted"]) for row in ours) == metrics.emitted


def test_the_positions_of_a_lane_give_its_text():
    trace = recorded(SAMPLED)
    for lane in LANES:
        own = [row for row in rows(tokens_csv(trace)) if row["lane"] == lane and row["position"]]
        assert [int(row["position"]) for row in own] == list(range(1, len(own) + 1))
        assert "".join(row["text"] for row in own) == trace.text(lane)
        by_round = [row["text"] for row in rows(rounds_csv(trace)) if row["lane"] == lane]
        assert "".join(by_round) == trace.text(lane)


def test_numbers_are_written_in_full():
    trace = recorded(SAMPLED)
    r = next(r for r in trace.rounds if r.drafted)
    place = next(i for i, row in enumerate(rows(tokens_csv(trace))) if row["q"])
    row = rows(tokens_csv(trace))[place]
    token = r.drafted[0]
    assert (row["round"], row["place"]) == (str(r.index + 1), "1")
    for name in ("p", "q", "u", "beta"):
        assert float(row[name]) == getattr(token, name)
    assert float(row["clock"]) == r.clock and row["soft_p"] == ""


@pytest.mark.parametrize("mark", "=+-@\t\r\n＝＋－＠")
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(mark: str):
    trace = with_text(mark + "cmd|' /C calc'!A0")
    for table in (tokens_csv(trace), rounds_csv(trace)):
        for row in rows(table):
            assert row["text"].startswith("'" + mark)


@pytest.mark.parametrize(
    "text", ['"', "a,b", "line\nbreak", "a\r\nb", "日本🙂", " =1", "\u2028", ""]
)
def test_any_other_text_is_unchanged(text: str):
    trace = with_text(text)
    assert {row["text"] for row in rows(tokens_csv(trace))} == {text}


def test_every_row_is_as_long_as_the_header():
    for make, columns in ((tokens_csv, TOKEN_COLUMNS), (rounds_csv, ROUND_COLUMNS)):
        table = list(csv.reader(io.StringIO(make(recorded(GREEDY)), newline="")))
        assert tuple(table[0]) == columns
        assert {len(row) for row in table} == {len(columns)}
