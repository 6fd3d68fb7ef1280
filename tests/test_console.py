"""Output to a terminal or a pipe: every stream can encode it, and nothing in it controls a
terminal."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from sentences import Sentences
from toy_models import byte_level, llama, relative

from specviz.__main__ import VERBS, Command, Verb, main
from specviz.base.console import escaped
from specviz.pairs.prompts import prompts_from
from specviz.runs.terminal import printable

RECORDING = ROOT / "assets" / "recordings" / "easy.json.gz"
PERSIAN = "می\N{ZERO WIDTH NON-JOINER}خواهم"
FAMILY = "👩\N{ZERO WIDTH JOINER}👩\N{ZERO WIDTH JOINER}👧"
SPACES = "a\N{NO-BREAK SPACE}b\N{IDEOGRAPHIC SPACE}c\N{SOFT HYPHEN}d\N{NARROW NO-BREAK SPACE}e"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a tiny pair on disk, for `--pair`."""
    root = tmp_path_factory.mktemp("pair")
    target = llama(300, eos_token_id=None)
    for name, model in (("target", target), ("draft", relative(target, noise=0.1))):
        model.save_pretrained(root / name)
        byte_level(300).save_pretrained(root / name)
    return f"{root / 'target'}+{root / 'draft'}"


def printed(
    arguments: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    """Run a command line; return its exit status, and its output to streams with this encoding."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    try:
        status = main(arguments)
    except SystemExit as ended:  # as after --help
        status = int(ended.code or 0)
    texts = []
    for stream in streams.values():
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    monkeypatch.undo()
    return status, texts[0], texts[1]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp932"])
def test_every_verb_prints_on_a_stream_that_lacks_its_signs(
    encoding: str, folders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = folders.split("+")
    prompt = f"Once\n{PERSIAN} {FAMILY}"
    run = ["run", prompt, "--pair", folders, "--max-new-tokens", "6"]
    for arguments, wanted in (
        (run, "bonus"),
        ([*run, "--color", "always"], "tokens identical"),
        (["doctor", target, draft], "good    tokenizer"),
        (["pairs"], "builtin"),
        (["check", str(RECORDING)], "easy.json.gz: "),
        (["run", "--help"], "usage: "),
    ):
        status, out, err = printed(arguments, encoding, monkeypatch)
        assert status == 0, err
        assert wanted in out


def test_a_sentence_about_a_mistake_is_printed_on_such_a_stream_too(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    status, _, err = printed(["check", "مرحبا-γ.json"], "cp1252", monkeypatch)
    assert status == 2
    sentences(err)


def test_a_prompt_cannot_drive_the_terminal(folders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt has escape codes for red and for the window's title, a C1 colour code, and
    right-to-left text."""
    prompt = "Once \x1b[31mred\x1b]0;title\x07 \x9b32m\u202etxet"
    run = ["run", prompt, "--pair", folders, "--max-new-tokens", "6", "--color", "never"]
    status, out, err = printed(run, "utf-8", monkeypatch)
    assert status == 0, err
    shown = "Once \\x1b[31mred\\x1b]0;title\\x07 \\x9b32m\\u202etxet"
    # Once above the rounds, and once before the text that continues it.
    assert out.count(shown) == 2
    assert not set("\x1b\x07\x9b\u202e") & set(out)


def test_a_file_name_in_a_sentence_cannot_either(
    monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    sentences(printed(["check", "\x1b[31mred.json"], "utf-8", monkeypatch)[2])


@pytest.mark.parametrize("text", [PERSIAN, FAMILY, SPACES, "\N{LEFT-TO-RIGHT MARK}a", "\ue000"])
def test_joiners_and_spaces_are_text(text: str) -> None:
    assert escaped(text) == printable(text) == text
    assert prompts_from(f'{{"{text}": ["x"]}}'.encode(), "a.json")[0].kind == text.strip()


def test_ends_of_lines_stay_in_a_text_and_are_signs_within_a_line() -> None:
    assert escaped("a\n\tb\r", lines=True) == "a\n\tb\\r"
    assert escaped("a\nb") == "a\\nb"
    assert printable("a\n\tb") == "a⏎⇥b"
    assert escaped("\ud83d") == "\\ud83d"


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
@pytest.mark.parametrize(
    "verb", ["run", "record", "pairs", "check", "variables", "doctor", "guess", "--help"]
)
def test_output_that_cannot_be_written_is_a_sentence(
    verb: str,
    folders: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sentences: Sentences,
) -> None:
    target, draft = folders.split("+")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat")
    run = ["hi", "--pair", folders, "--max-new-tokens", "4"]
    arguments = {
        "run": run,
        "record": [*run, "--out", str(tmp_path / "run.json")],
        "check": [str(RECORDING)],
        "doctor": [target, draft],
        "guess": ["--text", str(text), "--draft", draft],
    }
    errors = io.StringIO()
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", errors)
        try:
            status = main([verb, *arguments.get(verb, [])])
        except SystemExit as ended:
            status = int(ended.code or 0)
        assert sys.stdout is full
    assert status == 2
    sentences(errors.getvalue().splitlines()[-1])


@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
@pytest.mark.parametrize("verb", ["--help", "variables"])
def test_a_process_says_so_too(verb: str, sentences: Sentences) -> None:
    """Standard output drops text that it could not write, and argparse swallows errors."""
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "specviz", verb],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    sentences(ended.stderr)


def test_a_file_on_a_full_disk_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left", "chart.html")

    monkeypatch.setitem(VERBS, "pairs", Verb("", lambda: Command(full)))
    assert main(["pairs"]) == 2
    sentences(capsys.readouterr().err)


def test_a_closed_output_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["variables"]) == 0


def test_a_reader_who_has_had_enough_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    errors = io.StringIO()
    with os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", errors)
        assert main(["variables"]) == 130
    assert errors.getvalue() == ""
