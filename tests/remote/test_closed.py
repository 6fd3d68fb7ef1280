"""Closed models: a text of their API, what is said of their names, and the verb `guess`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from toy_models import byte_level, llama

from specviz import load_pair
from specviz.__main__ import main
from specviz.errors import PairError, ServerError
from specviz.inspect.guess import written_by
from specviz.pairs.doctor import examine
from specviz.pairs.hub import is_closed
from specviz.remote.address import ServerAddress
from specviz.remote.wire import RefusedError, Server


def api(answers: list[Any], asked: list[dict[str, Any]]) -> Server:
    """An API whose answers are these in turn: the chunks of a stream, or what it says to refuse."""

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append({"path": request.url.path, **json.loads(request.content)})
        one = answers[len(asked) - 1]
        if isinstance(one, str):
            return httpx.Response(400, json={"error": {"message": one}})
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in one]
        return httpx.Response(200, text="".join([": keep-alive\n\n", *lines, "data: [DONE]\n\n"]))

    where = ServerAddress(httpx.URL("https://api.example.com/v1"), "sk-key")
    return Server(where, httpx.MockTransport(answer))


def chat(*pieces: str | None) -> list[dict[str, Any]]:
    parts = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    return [*parts, {"choices": [], "usage": {"completion_tokens": 7}}]


def test_an_api_is_asked_without_what_its_model_refuses():
    asked: list[dict[str, Any]] = []
    no_heat = "Unsupported value: 'temperature' does not support 0 with this model."
    server = api(
        [no_heat, "max_completion_tokens is unknown", chat("", "Yes", None, ", it is.")], asked
    )
    assert written_by(server, "gpt-x", "Is it?", 50) == "Yes, it is."
    assert asked[0]["messages"] == [{"role": "user", "content": "Is it?"}]
    assert asked[0]["path"] == "/v1/chat/completions" and asked[0]["temperature"] == 0
    assert "temperature" not in asked[1] and "max_completion_tokens" not in asked[2]
    assert asked[1]["max_completion_tokens"] == 50 and all(one["stream"] for one in asked)

    asked.clear()
    server = api([[{"choices": [{"text": " on"}]}]], asked)
    assert written_by(server, "m", "Go", 5, continues=True) == " on"
    assert asked[0]["path"] == "/v1/completions" and asked[0]["prompt"] == "Go"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (chat(None), "wrote nothing"),
        ([{"error": {"message": "overloaded"}}], "failed in mid-answer: overloaded"),
        ([{"object": "list"}], "something else than OpenAI's protocol"),
        ("you must provide a chat template", "has no chat template for m: let it continue"),
    ],
)
def test_each_fault_of_an_api_has_its_sentence(answer: Any, said: str):
    with pytest.raises(ServerError, match=said):
        written_by(api([answer], []), "m", "Is it?", 5)


def test_a_refusal_for_another_reason_stays_one():
    with pytest.raises(RefusedError, match="no credit"):
        written_by(api(["no credit"], []), "m", "Is it?", 5)


def test_closed_models_are_known_by_name_and_open_ones_are_not():
    closed = ["gpt-4", "openai/gpt-4o-mini", "gpt-3.5-turbo", "o3-mini", "claude-3-opus"]
    for name in [*closed, "anthropic/claude-x", "gemini-1.5-pro", "google/gemini-2.0-flash"]:
        assert is_closed(name), name
    opened = [
        "gpt2",
        "openai/gpt-oss-20b",
        "EleutherAI/gpt-neo-125m",
        "gpt-j-6b",
        "google/gemma-2b",
    ]
    for name in [*opened, "someone/claude-distilled", "allenai/olmo-1b"]:
        assert not is_closed(name), name


def test_the_doctor_says_why_a_closed_model_cannot_race(tmp_path: Path):
    report = examine("gpt-4+gpt-3.5-turbo")
    (finding,) = report.findings
    assert report.verdict == "stop" and finding.topic == "closed"
    assert finding.sentence.startswith("gpt-4 has no weights to load, and its API")
    assert "specviz guess" in finding.sentence and report.suggested is None
    assert "openai/gpt-4o has no weights" in examine("openai/gpt-4o").findings[0].sentence
    with pytest.raises(PairError, match="no log-probabilities of given tokens"):
        load_pair("claude-3-opus+none")
    assert "name a draft of the hub" in examine("gpt2", "gpt-3.5-turbo").findings[0].sentence


def test_guess_prints_places_and_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, file = tmp_path / "draft", tmp_path / "text.txt"
    llama(300).save_pretrained(folder)
    byte_level(300).save_pretrained(folder)
    file.write_text("the cat sat\n", encoding="utf-8")
    command = ["guess", "--draft", str(folder), "--text", str(file)]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"] + "".join(one["text"] for one in found["places"]) == "the cat sat"
    assert found["would_be"]["5"]["judged"] >= found["would_be"]["5"]["right"]
    assert main([*command, "--color", "never", "--gamma", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("No speed-up: a thought experiment.")
    rounds = len(found["would_be"]["2"]["rounds"])
    assert sum(" │ " in line for line in printed.splitlines()) == rounds + 1
    assert f"had {sum(one['right'] for one in found['places'])} of" in printed
    assert main(["guess", "--text", str(tmp_path / "none.txt")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["guess", "--api", "https://api.example.com/v1#m"]) == 2
    assert "--prompt" in capsys.readouterr().err
    assert main(["guess", "--api", "https://api.example.com/v1", "--prompt", "Why?"]) == 2
    assert "https://HOST/v1#MODEL" in capsys.readouterr().err
