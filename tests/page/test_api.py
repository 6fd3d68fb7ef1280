"""The endpoints for programs: their results, their refusals, and their end when nobody reads any
more."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import gradio as gr
import orjson
import pytest
from gradio.utils import diff
from gradio_client import Client
from gradio_client.exceptions import AppError
from gradio_client.utils import apply_diff
from page_server import Site, served, toy_pair
from sentences import Sentences
from streams import Stepped
from waiting import until

from specviz import Settings, Trace, compute_metrics
from specviz.base.environment import ASSETS
from specviz.base.errors import SpecvizError
from specviz.core.events import Round
from specviz.core.race import race
from specviz.page.api import ENDED_EARLY, _requested_run, collected, signature_of, streamed
from specviz.page.controls import MAX_CHARACTERS, MAX_LENGTH
from specviz.page.sweeps import asked_request
from specviz.runs.recording import read_recording
from specviz.runs.trace import SCHEMA

BUILTIN = (ASSETS / "pair" / "target").is_dir()


class Watched:
    """A race that counts the runs inside it and can be slowed down."""

    def __init__(self) -> None:
        self.now = self.most = self.ended = 0
        self.pause = 0.0
        self.settings: list[Settings] = []

    def __call__(self, pair: Any, prompt: Any, settings: Settings) -> Iterator[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.settings.append(settings)
        try:
            for event in race(pair, prompt, settings):
                time.sleep(self.pause)
                yield event
        finally:
            self.now -= 1
            self.ended += 1


WATCHED = Watched()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(race=WATCHED) as site:
        yield site


@pytest.fixture
def client(site: Site) -> Client:
    """A new client for each test: on a stalled machine gradio_client takes the end of one answer
    for that of the next call, and then waits for ever."""
    return Client(site.url, verbose=False)


def test_only_four_endpoints_are_named(site: Site) -> None:
    info = site.get("/gradio_api/info").json
    assert set(info["named_endpoints"]) == {"/generate", "/race", "/doctor", "/sweep"}
    assert info["unnamed_endpoints"] == {}
    for name, endpoint in info["named_endpoints"].items():
        assert endpoint["description"].strip(), name
        assert endpoint["returns"], f"{name} has no declared result"


PARAMETERS = [
    ("prompt", "string", None),
    ("pair", "string", "builtin"),
    ("gamma", "integer", 5),
    ("temperature", "number", 0.7),
    ("top_k", "integer", 0),
    ("top_p", "number", 1.0),
    ("max_new_tokens", "integer", 128),
    ("seed", "integer", 1),
    ("drafter", "string", "model"),
    ("gamma_policy", "string", "fixed"),
    ("chat", "string", "auto"),
    ("stop", None, None),
    ("lanes", None, None),
    ("verdict", "string", "token"),
]


@pytest.mark.parametrize("endpoint", ["generate", "race"])
def test_parameters_keep_their_places_types_and_defaults(site: Site, endpoint: str) -> None:
    """Programs may pass them by position."""
    rows = site.get("/gradio_api/info").json["named_endpoints"]["/" + endpoint]["parameters"]
    found = [
        (row["parameter_name"], row["type"].get("type"), row.get("parameter_default"))
        for row in rows
    ]
    assert found == PARAMETERS
    assert [row["parameter_has_default"] for row in rows] == [False] + [True] * 13
    assert {one["type"] for one in rows[-2]["type"]["oneOf"]} == {"array", "null"}


async def as_stream(states: Iterable[Any]) -> AsyncIterator[Any]:
    for state in states:
        yield state


def test_an_unchanged_state_is_a_value() -> None:
    """Otherwise the server would not notice that a program in the queue has left."""
    said = (("Wait.", False), ("", False))
    states = ({"status": status, "over": over} for status, over in said)
    values = Stepped(streamed(as_stream(states)))
    assert [next(values), next(values)] == [{"status": "Wait."}, {}]


@pytest.mark.parametrize("endpoint", [streamed, collected])
def test_a_run_that_ends_before_its_first_event_is_a_sentence(endpoint: Any) -> None:
    said = (("Wait.", False), ("", True))
    states = ({"status": status, "over": over} for status, over in said)
    values = Stepped(endpoint(as_stream(states)))
    assert next(values) == {"status": "Wait."}
    with pytest.raises(gr.Error, match=re.escape(ENDED_EARLY)):
        list(values)


def test_generate_gives_text_metrics_and_a_recording(client: Client) -> None:
    result = client.predict(
        "the cat", max_new_tokens=20, temperature=0.8, seed=3, api_name="/generate"
    )
    trace = Trace.from_dict(result["trace"])
    assert read_recording(orjson.dumps(result["trace"])) == trace
    assert result["text"] == result["texts"]["speculative"] == trace.text("speculative")
    expected = compute_metrics(trace)
    assert result["metrics"]["alpha"] == expected.alpha
    assert result["metrics"]["tokens"] == expected.tokens
    assert trace.header.settings.seed == 3 and trace.header.settings.max_new_tokens == 20
    assert result["lanes"] == {"speculative": result["metrics"]}


def test_programs_race_further_lanes_by_what_differs(
    client: Client, caplog: pytest.LogCaptureFixture, sentences: Sentences
) -> None:
    lanes = ["drafter=ngram,name=copy", "gamma=2"]
    result = client.predict("the cat", max_new_tokens=12, lanes=lanes, api_name="/generate")
    trace = read_recording(orjson.dumps(result["trace"]))
    assert trace.header.speculative == ("draft model, gamma 5", "copy", "draft model, gamma 2")
    assert result["texts"] == {lane: trace.text(lane) for lane in trace.lanes}
    assert result["lanes"]["copy"]["tau"] == compute_metrics(trace, "copy").tau
    for wrong in (
        ["temperature=1"],
        ["gamma=1"] * 3,
        ["gamma=" + "9" * 5000],
        ["gamma=" + "x" * 5000],
        ["9" * 5000],
    ):
        caplog.clear()
        with sentences.raises(AppError):
            client.predict("the cat", lanes=wrong, api_name="/generate")
        assert not any(record.exc_info for record in caplog.records)


def test_what_changes_between_two_values_leads_from_one_to_the_other() -> None:
    """Gradio sends only the difference, and computes it wrongly for some lists."""

    def state(*rounds: Round) -> dict[str, Any]:
        return {"rounds": rounds, "status": "", "over": False}

    runs = race(toy_pair(), "the cat", Settings(gamma=6, temperature=1.0, max_new_tokens=80))
    rounds = [event for event in runs if isinstance(event, Round)]
    parts = [rounds[at : at + 7 - at % 5] for at in range(0, len(rounds), 5)]
    values: list[Any] = list(Stepped(streamed(as_stream(state(*part) for part in parts))))
    for before, after in itertools.pairwise([None, *json.loads(json.dumps(values))]):
        assert apply_diff(before, diff(before, after)) == after


def test_race_streams_what_a_recording_holds(client: Client) -> None:
    job = client.submit("the cat", max_new_tokens=24, seed=5, api_name="/race")
    values = list(job)
    data: dict[str, Any] = {"schema": SCHEMA, "header": None, "rounds": [], "end": None}
    for value in values:
        data["rounds"] += value.get("rounds", [])
        data |= {name: value[name] for name in ("header", "end") if name in value}
    trace = Trace.from_dict(data)
    assert json.loads(orjson.dumps(trace.to_dict())) == data
    assert trace.end is not None and read_recording(orjson.dumps(data)) == trace


def test_a_program_sweeps_and_is_told_what_it_asks_wrong(
    client: Client, sentences: Sentences
) -> None:
    small = {"prompts": ["the cat", "a dog"], "drafters": "ngram", "length": 6, "seconds": 1}
    result = client.predict(**small, gammas="1 2", api_name="/sweep")
    rows = result["result"]["rows"]
    assert [row["configuration"]["gamma"] for row in rows] == [1, 2]
    assert any(row["measured"] for row in rows) and len(result["csv"].splitlines()) == 3
    for wrong in ({"gammas": "1 two"}, {"seconds": 1e9}):
        with sentences.raises(AppError):
            client.predict(**{**small, **wrong}, api_name="/sweep")


SMALL_SWEEP: dict[str, Any] = {
    "prompts": ["the cat"],
    "drafters": "ngram",
    "gammas": "1",
    "length": 4,
    "seconds": 1,
}

# Every type of JSON that the guard admits, and texts that some parsers take for numbers.
OF_EVERY_KIND = [
    None,
    True,
    False,
    0,
    -1,
    3,
    10**40,
    1.5,
    1e308,
    "",
    " ",
    "text",
    "1e999",
    "nan",
    "\0",
    [],
    ["a"],
    ["1", "2"],
    [1, 2],
    [1.5],
    ["x" * 5000],
    "x" * 9000,
]


def asked_of_endpoints(pair: str) -> dict[str, tuple[dict[str, Any], Callable[..., Any]]]:
    """Return, for each endpoint with typed fields, its usual fields and a function that makes a job
    of them without running it."""

    def race_asked(**fields: Any) -> object:
        return _requested_run(pair, tuple(fields.values()))

    def sweep_asked(**fields: Any) -> object:
        return asked_request(fields)

    settings = signature_of(pair).parameters
    racing = {name: parameter.default for name, parameter in settings.items()}
    sweeping = {**SMALL_SWEEP, "policies": "fixed", "temperatures": "0", "kinds": []}
    return {"race": ({**racing, "prompt": "a"}, race_asked), "sweep": (sweeping, sweep_asked)}


@pytest.mark.parametrize("endpoint", ["race", "sweep"])
def test_a_value_of_any_kind_is_taken_or_is_a_sentence(endpoint: str) -> None:
    """The test puts every value into every field, even values that only other fields accept."""
    usual, asked = asked_of_endpoints("builtin")[endpoint]
    assert asked(**usual)
    refused = []
    for field in usual:
        for value in OF_EVERY_KIND:
            try:
                asked(**{**usual, field: value})
            except (SpecvizError, gr.Error) as error:
                refused.append(str(error))
    assert len(refused) > 10 * len(usual)
    assert all(sentence.endswith((".", ".'")) and len(sentence) < 300 for sentence in refused)


@pytest.mark.parametrize("gammas", [[1, 2], ["1", "2"], "1 2", [1.0, 2]])
def test_lists_of_a_sweep_are_json_or_texts(site: Site, gammas: Any) -> None:
    lists = {"gammas": gammas, "drafters": ["ngram"], "policies": ["fixed"], "temperatures": [0.5]}
    *_, (kind, (result,)) = site.events("v2/sweep", {**SMALL_SWEEP, **lists})
    assert kind == "complete"
    rows = [row["configuration"] for row in result["result"]["rows"]]
    assert [(row["gamma"], row["temperature"]) for row in rows] == [(1, 0.5), (2, 0.5)]


@pytest.mark.parametrize(
    "change",
    [
        {"prompts": "the cat"},
        {"prompts": [1]},
        {"gammas": [1.5]},
        {"gammas": True},
        {"temperatures": "inf"},
        {"seconds": "soon"},
        {"length": [4]},
        {"drafters": [1]},
    ],
    ids=str,
)
def test_a_sweep_says_what_a_field_takes(change: dict[str, Any], sentences: Sentences) -> None:
    usual = {**SMALL_SWEEP, "policies": "fixed", "temperatures": "0"}
    with sentences.raises(SpecvizError):
        asked_request({**usual, **change})


def test_plain_http_needs_no_client(site: Site) -> None:
    settings = {"prompt": "the cat", "max_new_tokens": 12, "temperature": 0}
    begun = site.post("/gradio_api/call/v2/generate", settings)
    said = site.get(f"/gradio_api/call/generate/{begun.json['event_id']}").body.decode()
    *_, last = said.strip().split("\n\n")
    assert last.startswith("event: complete\n")
    (result,) = json.loads(last.split("data: ", 1)[1])
    assert result["metrics"]["tokens"]["baseline"] == 12
    assert result["trace"]["end"]["lanes"]["speculative"]["identical"] is True


BAD = [
    {"gamma": 99_999},
    {"temperature": "hot"},
    {"top_p": 0},
    {"max_new_tokens": MAX_LENGTH + 1},
    {"seed": -1},
    {"drafter": "oracle"},
    {"chat": None},
    {"stop": ["", "x"]},
    {"prompt": ""},
    {"prompt": 7},
    {"prompt": "x" * (MAX_CHARACTERS + 1)},
    {"pair": "/etc+/tmp"},
    {"pair": "evil/target+evil/draft"},
    {"pair": None},
]


def named(value: str | dict[str, Any]) -> str:
    """The id of a test: the endpoint, or the names of the fields of a request."""
    return ",".join(value) if isinstance(value, dict) else value


@pytest.mark.parametrize("change", BAD, ids=named)
@pytest.mark.parametrize("endpoint", ["generate", "race"])
def test_a_wrong_value_is_a_sentence(
    client: Client, endpoint: str, change: dict[str, Any], sentences: Sentences
) -> None:
    with sentences.raises(AppError):
        asked = {"prompt": "the cat", "max_new_tokens": 4, **change}
        client.predict(**asked, api_name="/" + endpoint)


MISNAMED = [
    ("generate", {}),
    ("race", {"gamma": 3}),
    ("generate", {"prompt": "a", "max_tokens": 5}),
    ("generate", {"promt": "a"}),
    ("race", {"prompt": "a", "top-k": 5}),
    ("race", {"prompt": "a", "Temperature": 1}),
    ("race", {"messages": []}),
    ("generate", {"prompt": "a", "zzz": 1}),
    ("generate", {"prompt": "a", "<b>": 1}),
    ("generate", {"prompt": "a", "stop": [5]}),
    ("generate", {"prompt": "a", "stop": ["x"] * 65}),
    ("generate", {"prompt": "a", "gamma": {"a": 1}}),
    ("generate", {"prompt": ["a", 1]}),
    ("sweep", {"gammas": {}}),
    ("sweep", {"gamma": "1 2"}),
    ("sweep", {"max_new_tokens": 9}),
    ("doctor", {"model": "builtin"}),
]


@pytest.mark.parametrize(("endpoint", "fields"), MISNAMED, ids=named)
def test_a_wrong_field_is_named_and_the_one_that_was_meant(
    site: Site, endpoint: str, fields: dict[str, Any], sentences: Sentences
) -> None:
    answer = site.post(f"/gradio_api/call/v2/{endpoint}", fields)
    assert answer.status == 400 and len(answer.json["detail"]) < 250
    sentences(answer.json["detail"])


BY_PLACE = {"none": [], "of another kind": ["a", "builtin", [5]], "too many": ["a"] * 15}


@pytest.mark.parametrize("values", BY_PLACE.values(), ids=BY_PLACE)
def test_values_by_place_are_named_too(site: Site, values: list[Any], sentences: Sentences) -> None:
    number = next(
        one["id"]
        for one in site.get("/config").json["dependencies"]
        if one["api_name"] == "generate"
    )
    for path, body in (
        ("call/generate", {"data": values}),
        ("queue/join", {"data": values, "fn_index": number, "session_hash": "s"}),
    ):
        answer = site.post(f"/gradio_api/{path}", body)
        assert answer.status == 400, path
        sentences(answer.json["detail"])


def test_any_model_may_be_named_where_the_operator_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_ANY_MODEL", "1")
    result = client.predict(
        "the cat", pair="some/target+some/draft", max_new_tokens=4, api_name="/generate"
    )
    assert result["metrics"]["tokens"]["baseline"] == 4


def test_runs_take_turns(client: Client) -> None:
    WATCHED.most = 0
    jobs = [client.submit("the cat", max_new_tokens=30, api_name="/generate") for _ in range(5)]
    assert [job.result()["metrics"]["tokens"]["baseline"] for job in jobs] == [30] * 5
    assert WATCHED.most == 1


@pytest.mark.parametrize("endpoint", ["generate", "race"])
def test_a_run_ends_when_its_client_leaves(site: Site, endpoint: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(WATCHED, "pause", 0.2)  # seconds; uninterrupted, the run would take 100
    ended = WATCHED.ended
    begun = site.post(f"/gradio_api/call/v2/{endpoint}", {"prompt": "cat", "max_new_tokens": 512})
    connection = http.client.HTTPConnection(site.host, site.port, timeout=60)
    connection.request("GET", f"/gradio_api/call/{endpoint}/{begun.json['event_id']}")
    answer = connection.getresponse()
    assert any(b"data" in answer.readline() for _ in range(20))
    assert until(lambda: WATCHED.now == 1)
    answer.close()
    connection.close()
    assert until(lambda: WATCHED.now == 0)
    assert WATCHED.ended == ended + 1


@pytest.mark.parametrize("endpoint", ["generate", "race"])
def test_a_program_is_told_that_its_run_was_stopped_at_once(
    site: Site, endpoint: str, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert until(lambda: WATCHED.now == 0)
    monkeypatch.setattr(WATCHED, "pause", 0.2)
    runs = site.page.run_queue
    earlier = set(runs.jobs())
    first = site.post("/gradio_api/call/v2/generate", {"prompt": "cat", "max_new_tokens": 512})
    reading = threading.Thread(
        target=site.get, args=(f"/gradio_api/call/generate/{first.json['event_id']}",)
    )
    reading.start()
    assert until(lambda: WATCHED.now == 1)

    def stop_the_other() -> None:
        assert until(lambda: len(set(runs.jobs()) - earlier) == 2)
        *_, job = runs.jobs()
        runs.cancel(job)

    stopping = threading.Thread(target=stop_the_other)
    stopping.start()
    kind, said = site.events(f"v2/{endpoint}", {"prompt": "cat"})[-1]
    for job in runs.jobs():
        runs.cancel(job)
    stopping.join()
    reading.join()
    assert (kind, said["error"]) == ("error", ENDED_EARLY)
    assert not any(record.exc_info for record in caplog.records)


def test_a_cancelled_job_ends_its_run(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(WATCHED, "pause", 0.2)
    job = client.submit("the cat", max_new_tokens=512, api_name="/race")
    assert until(job.outputs)
    assert until(lambda: WATCHED.now == 1)
    job.cancel()
    assert until(lambda: WATCHED.now == 0)


@pytest.mark.skipif(not BUILTIN, reason="no built-in pair here")
def test_the_doctor_answers_programs(client: Client) -> None:
    report = client.predict(api_name="/doctor")
    assert report["verdict"] in ("good", "warning")
    assert report["findings"] and report["summary"].endswith(".")


def test_the_doctor_reads_no_folder_that_is_not_offered(client: Client) -> None:
    for pair in ("/etc", "/etc+/tmp", "../..+none", "gpt2"):
        with pytest.raises(AppError, match="not offered here"):
            client.predict(pair, api_name="/doctor")


def test_events_of_the_page_are_not_for_programs(site: Site, client: Client) -> None:
    with pytest.raises(ValueError, match="api_name"):
        client.predict("{}", api_name="/run")
    for name in ("start", "halt", "examine", "v2/run"):
        answer = site.post(f"/gradio_api/call/{name}", {"data": []})
        assert answer.status in (400, 404) and answer.json["detail"].endswith(".")


def test_threads_do_not_pile_up(client: Client) -> None:
    client.predict("the cat", max_new_tokens=4, api_name="/generate")
    before = threading.active_count()
    for _ in range(5):
        client.predict("the cat", max_new_tokens=4, api_name="/generate")
    assert until(lambda: threading.active_count() <= before + 2)


def test_toy_pairs_are_what_the_tests_think() -> None:
    assert toy_pair().tokenizer.decode(toy_pair().encode("<b>")) == "<b>"


DOCUMENT = (ASSETS.parent / "docs" / "api.md").read_text("utf-8")


def blocks_of_the_document(language: str) -> list[str]:
    """The code blocks in a language of the document for programs."""
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.skipif(not BUILTIN, reason="no built-in pair here")
def test_the_documents_python_runs(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks_of_the_document("python")
    exec(code.replace("http://127.0.0.1:7860", site.url), {})
    printed = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("baseline [") for line in printed) == 64
    assert printed[0].endswith(".")


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_documents_shell_runs(site: Site) -> None:
    (code,) = blocks_of_the_document("sh")
    script = code.replace("http://127.0.0.1:7860", site.url)
    run = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    *_, last = run.stdout.strip().split("\n\n")
    assert last.startswith("event: complete\n")
    (result,) = json.loads(last.split("data: ", 1)[1])
    assert result["metrics"]["tokens"]["baseline"] == 64


def test_the_document_names_every_setting_that_programs_have(site: Site) -> None:
    parameters = site.get("/gradio_api/info").json["named_endpoints"]["/generate"]["parameters"]
    for parameter in parameters:
        assert f"`{parameter['parameter_name']}`" in DOCUMENT
