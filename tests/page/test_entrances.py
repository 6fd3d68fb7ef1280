"""Malformed inputs at every entrance: each gets a sentence or a value, and nothing else changes.

A short form runs with the other tests; SPECVIZ_MALFORMED=500 sets the number of inputs of each
kind.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import hypothesis.strategies as st
import pytest
from filed import emitted
from hypothesis import given
from injection_texts import CORPUS
from page_server import Answer, Site, served
from places import ROOT
from toy_models import examples
from toy_recordings import SAMPLED, recorded, saved

from specviz.base.environment import Variable, number
from specviz.page.security.requests import NOT_OURS
from specviz.worker.failures import FAILED

MALFORMED = Variable("SPECVIZ_MALFORMED", "Malformed requests of each kind.", number(int, 0), 20)
COUNT = MALFORMED.read()
HERE = re.escape(str(ROOT)).encode()
INSIDES = re.compile(
    rb"Traceback|File \\?\"|" + HERE + rb"|/usr/|/home/|site-packages|\w+Error\b|\.py\b"
)

TEXTS = st.one_of(st.sampled_from(CORPUS), st.text(max_size=60))
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, -1, 10**400, 1e308, -0.0, 2**53, 2**63]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
NAMES = ["prompt", "pair", "gamma", "temperature", "top_k", "top_p", "seed", "drafter", "stop"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as site:
        before = reference(site)
        yield site
        # After all of them, the same run gives the same tokens.
        assert reference(site) == before


def reference(site: Site) -> list[int]:
    """The tokens of a run that must not depend on anything before it."""
    drafting = ["model", "fixed", "auto", None, None, "token"]
    values = ["the cat", "builtin", 4, 0.8, 0, 1.0, 12, 7, *drafting]
    kind, (result,) = site.events("generate", {"data": values})[-1]
    assert kind == "complete"
    rounds = [r for r in result["trace"]["rounds"] if r["lane"] == "speculative"]
    return [t["id"] for r in rounds for t in emitted(r)]


def dumped(value: Any) -> bytes:
    """JSON as Python writes it, with NaN, infinities and lone surrogates."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def check_answer(answer: Answer) -> None:
    """Check that a refusal is one sentence that reveals no internals."""
    assert not INSIDES.search(answer.body), answer.body[:500]
    if answer.status >= 400:
        said = answer.json["detail"]
        assert said.endswith(".") and said[0].isupper() and "\n" not in said
        assert answer.status != 500, answer.body


def check_question(answer: Answer) -> None:
    check_answer(answer)
    # A job that ended without a failure has an error of None.
    if answer.status == 200 and isinstance(answer.json, dict) and answer.json.get("error"):
        said = answer.json["error"]
        assert said.rstrip().endswith(".") and "\n" not in said and len(said) < 400


def fields_of(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """A strategy for objects with some of the expected names, and perhaps others."""
    known = {name: VALUES for name in names}
    return st.builds(
        lambda one, other: {**other, **one},
        st.fixed_dictionaries({}, optional=known),
        st.dictionaries(TEXTS, VALUES, max_size=2),
    )


QUESTIONS = {
    "missed": ("run", "seq"),
    "begin_sweep": ("naming", "prompts", "drafters", "gammas", "temperatures", "length", "seconds"),
    "begin_sampling": ("run", "prompt", "settings", "draws", "again"),
    "begin_difference": ("run", "lane", "trace"),
    "begin_rerun": ("run", "trace"),
    "ask_job": ("id",),
    "end_job": ("id",),
    "stop": ("session",),
    "loading": ("id",),
    "begin_fetch": ("id",),
    "stop_fetch": ("id",),
    "ask_fetch": ("id",),
    # With a valid pair, the doctor would examine it every time.
    "examine": ("target", "draft", "weights"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(site: Site, name: str) -> None:
    @examples(COUNT)
    @given(asked=st.one_of(fields_of(*QUESTIONS[name]), VALUES))
    def check(asked: Any) -> None:
        check_question(site.post(f"/ask/{name}", dumped(asked)))

    check()


def test_no_question_is_left_out(site: Site) -> None:
    paths = [route.path for route in site.page.routes if hasattr(route, "path")]
    assert {path[5:] for path in paths if path.startswith("/ask/")} == set(QUESTIONS)


def test_wishes_for_a_run(site: Site) -> None:
    """The fields have values of other types than the page sends: each is accepted or refused with
    one sentence."""
    usual = {"session": "odd", "prompt": "the cat", "pair": "builtin", "lanes": "one"}

    @examples(COUNT)
    @given(wish=st.one_of(fields_of("session", "prompt", "pair", "lanes", *NAMES[2:]), VALUES))
    def check(wish: Any) -> None:
        asked = {**usual, **wish} if isinstance(wish, dict) else wish
        answer = site.post("/run", dumped(asked))
        check_answer(answer)
        if answer.status == 200:
            check_question(Answer(200, {}, answer.body.strip().split(b"data: ")[-1]))

    check()


def test_experiments_with_odd_settings(site: Site) -> None:
    @examples(COUNT)
    @given(settings=fields_of(*NAMES[2:]), draws=SCALARS, again=SCALARS)
    def check(settings: Any, draws: Any, again: Any) -> None:
        asked = {"run": None, "prompt": "the cat", "settings": settings}
        answer = site.question("begin_sampling", {**asked, "draws": draws, "again": again})
        check_question(answer)
        begun = answer.json if answer.status == 200 else {}
        if begun.get("id"):
            site.question("end_job", {"id": begun["id"]})

    check()


@pytest.mark.parametrize("path", ["queue/join", "call/generate", "call/race", "cancel", "reset"])
def test_envelopes(site: Site, path: str) -> None:
    @examples(COUNT)
    @given(body=st.one_of(fields_of("data", "fn_index", "session_hash", "event_id"), VALUES))
    def check(body: Any) -> None:
        check_answer(site.post(f"/gradio_api/{path}", dumped(body)))

    check()


@pytest.mark.parametrize("path", ["ask", "queue/join", "call/v2/race", "login"])
def test_bytes_that_are_no_json(site: Site, path: str) -> None:
    where = {"login": "/login", "ask": "/ask/missed"}.get(path, f"/gradio_api/{path}")

    @examples(COUNT)
    @given(raw=st.binary(max_size=200), kind=st.sampled_from(["application/json", "text/x"]))
    def check(raw: bytes, kind: str) -> None:
        check_answer(site.post(where, raw, {"Content-Type": kind}))

    check()


@pytest.mark.parametrize("endpoint", ["generate", "race", "doctor"])
def test_programs_by_name(site: Site, endpoint: str) -> None:
    plain = st.one_of(SCALARS, st.lists(TEXTS, max_size=3))

    @examples(COUNT)
    @given(
        values=st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXTS), plain, max_size=4),
        few=st.integers(0, 3),
    )
    def check(values: dict[str, Any], few: int) -> None:
        # With a valid pair, the doctor would examine it every time.
        usual = {"pair": "none"} if endpoint == "doctor" else {"max_new_tokens": few}
        asked = {**usual, **values}
        begun = site.post(f"/gradio_api/call/v2/{endpoint}", dumped(asked))
        check_answer(begun)
        if begun.status == 200:
            check_stream(site, f"/gradio_api/call/{endpoint}/{begun.json['event_id']}")

    check()


def check_stream(site: Site, path: str) -> None:
    """Check that the last event of an endpoint is a result or a sentence."""
    answer = site.get(path)
    check_answer(answer)
    *_, last = answer.body.decode().strip().split("\n\n")
    kind, data = last.split("\n", 1)
    if kind == "event: error":
        said = json.loads(data.removeprefix("data: "))["error"]
        assert said and said.endswith(".") and "\n" not in said, said
    else:
        assert kind == "event: complete"


def test_events_of_the_page_by_number(site: Site) -> None:
    events = len(site.page.programs)
    numbers = st.integers(-2, events + 2)
    plain = st.one_of(SCALARS, st.lists(TEXTS, max_size=3))
    turn = iter(range(10**9))

    @examples(COUNT)
    @given(number=numbers, data=st.lists(plain, max_size=20))
    def check(number: int, data: list[Any]) -> None:
        session = f"odd{next(turn)}"
        body = {"fn_index": number, "session_hash": session, "data": data}
        begun = site.post("/gradio_api/queue/join", dumped(body))
        check_answer(begun)
        if begun.status == 200:
            check_page_stream(site, session)

    check()


def check_page_stream(site: Site, session: str) -> None:
    answer = site.get(f"/gradio_api/queue/data?session_hash={session}")
    check_answer(answer)
    messages = [json.loads(one[6:]) for one in answer.body.decode().strip().split("\n\n")]
    ends = [one for one in messages if one["msg"] == "process_completed"]
    assert len(ends) == 1
    if not ends[0]["success"]:
        said = ends[0]["output"]["error"]
        assert said and said.endswith(".") and "\n" not in said, said


def test_addresses(site: Site) -> None:
    pieces = st.one_of(TEXTS, st.sampled_from(["..", ".", "gradio_api", "file=", "assets", "%2e"]))

    @examples(COUNT)
    @given(parts=st.lists(pieces, max_size=5), query=TEXTS, method=st.sampled_from(["GET", "POST"]))
    def check(parts: list[str], query: str, method: str) -> None:
        path = "/" + "/".join(quote(part, safe="%=.") for part in parts)
        # A stream of heartbeats never ends.
        if "heartbeat" not in path:
            answer = site.ask(method, f"{path}?prompt={quote(query)}&__theme={quote(query)}", b"{}")
            assert answer.status in (200, 307, 308) or answer.status >= 400
            if not answer.headers.get("content-type", "").startswith(("text/html", "text/css")):
                check_answer(answer)

    check()


def test_query_parameters(site: Site) -> None:
    @examples(COUNT)
    @given(query=st.dictionaries(st.one_of(st.sampled_from(NAMES), TEXTS), TEXTS, max_size=4))
    def check(query: dict[str, str]) -> None:
        answer = site.get("/?" + urlencode(query))
        assert answer.status == 200
        for text in (*query, *query.values()):
            if "<" in text:
                assert text.encode("utf-8", "replace") not in answer.body

    check()


def spoil(raw: bytes, edits: list[tuple[int, int]]) -> bytes:
    """Replace some bytes. edits: positions and new values."""
    found = bytearray(raw)
    for place, byte in edits:
        found[place % len(found)] = byte
    return bytes(found)


@pytest.mark.parametrize("packed", [True, False], ids=["gzipped", "plain"])
def test_files(site: Site, packed: bool, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("files")
    raw = saved(recorded(SAMPLED), folder, "run.json.gz" if packed else "run.json")
    edits = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6)

    @examples(COUNT)
    @given(edits=edits, cut=st.one_of(st.none(), st.integers(0, len(raw))))
    def check(edits: list[tuple[int, int]], cut: int | None) -> None:
        answer = site.file("trace", spoil(raw, edits)[:cut])
        check_question(answer)
        assert answer.json.keys() in ({"trace"}, {"error"})

    check()


def wish_of(site: Site) -> dict[str, Any]:
    """The page's request for a run with default settings."""
    return {"session": "by hand", "prompt": "the cat", **site.offer()["defaults"]}


def run_of(site: Site, wish: Any) -> str:
    """The whole answer to a request for a run."""
    return site.post("/run", wish).body.decode()


def test_what_is_wrong_is_told_from_what_went_wrong(site: Site) -> None:
    """A caller's mistake is named as such: "not your fault" would mislead them."""
    for wish in ({}, {"prompt": "the cat"}, [], 7, {**wish_of(site), "pair": "nobody/nothing"}):
        said = run_of(site, wish)
        assert NOT_OURS in said or "is not a text" in said or "not offered" in said
        assert FAILED not in said
    assert site.post("/run", b"no JSON").json["error"] == NOT_OURS
    for data in ([], [None] * 40, [7]):
        assert site.post("/gradio_api/call/generate", {"data": data}).status == 400
    for name, asked in (("missed", {"run": "", "seq": "x"}), ("ask_job", {})):
        answer = site.question(name, asked)
        assert answer.status == 200 and answer.json["error"] == NOT_OURS


def test_a_prompt_by_hand_meets_the_limit_of_the_page(site: Site) -> None:
    said = run_of(site, {**wish_of(site), "prompt": "x" * 9000})
    assert "use up to 8000" in said and "rounds" not in said


def test_others_notice_nothing(site: Site) -> None:
    """A stranger's malformed inputs do not end another visitor's run."""
    drafting = ["model", "fixed", "auto", None, None, "token"]
    values = ["the cat", "builtin", 4, 0.8, 0, 1.0, 200, 7, *drafting]
    runs: list[Any] = []

    def visit() -> None:
        runs.append(site.events("race", {"data": values})[-1][0])

    visitor = threading.Thread(target=visit)
    visitor.start()
    attacks: list[Callable[[], Answer]] = [
        lambda: site.post(
            "/gradio_api/cancel", {"session_hash": "x", "fn_index": 0, "event_id": "y"}
        ),
        lambda: site.question("end_job", {"id": "None"}),
        lambda: site.question("begin_sampling", {"prompt": "x", "settings": {"gamma": -1}}),
        lambda: site.question("missed", {"run": "", "seq": -1}),
        lambda: site.post("/gradio_api/call/race", {"data": [None] * 12}),
        lambda: site.post("/gradio_api/reset", {"event_id": "x"}),
    ]
    while visitor.is_alive():
        for attack in attacks:
            check_answer(attack())
    visitor.join()
    assert runs == ["complete"]
