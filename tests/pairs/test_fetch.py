"""A named pair is fetched completely or not at all, and every failure says what to do."""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import fetched_pair
import huggingface_hub
import pytest
from fake_hub import COMMIT, fake_hub, use_hub, use_no_proxy
from fake_index import PARTS, write_wheels
from fetched_pair import fetched_files
from filelock import FileLock
from gguf_writer import write_model
from huggingface_hub import constants
from sentences import Sentences
from waiting import until

from specviz import load_pair
from specviz.__main__ import main
from specviz.base.environment import BUILTIN
from specviz.base.errors import PairError
from specviz.files import hub, model_files
from specviz.files.gguf.header import read_gguf
from specviz.files.model_files import ModelFile, WheelParts, find_file
from specviz.files.progress import Progress, terminal_watcher
from specviz.pairs import fetch as fetching
from specviz.pairs import table
from specviz.pairs.fetch import fetch, fetch_plan
from specviz.pairs.opening import first_pair
from specviz.pairs.pair_files import named_files
from specviz.pairs.spec import ModelsSpec, NamedSpec
from specviz.pairs.table import Facts, NamedPair, at_hand, named_pair, named_pairs
from specviz.worker.loading import Models

REPOSITORY = "org/toy-gguf"
CONTENT = bytes(range(256)) * 1200  # 307,200 bytes


def packed_row(name: str, *contents: bytes, wheels: WheelParts = PARTS) -> NamedPair:
    """A row of the table with one file for each content, the target's first."""
    files = [
        ModelFile(
            name=f"{name}-{number}.gguf",
            repository=REPOSITORY,
            revision=COMMIT,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            bits=4,
            wheels=wheels,
        )
        for number, content in enumerate(contents)
    ]
    models = [
        Facts(f"org/{name}-{number}", 1000, 8, 256, "mit", False, True, 900, "bfloat16")
        for number in range(len(contents))
    ]
    return NamedPair(
        name=name,
        target=models[0],
        shows="A toy.",
        draft=models[1] if len(models) > 1 else None,
        target_file=files[0],
        draft_file=files[1] if len(files) > 1 else None,
    )


class Machine(NamedTuple):
    """A machine that has fetched nothing yet. pages: the hub's files of the toy repository."""

    models: Path
    pages: Path
    wheels: Path
    list_row: Callable[[NamedPair], NamedPair]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    rows = list(named_pairs())

    def list_row(row: NamedPair) -> NamedPair:
        rows.append(row)
        return row

    here = Machine(tmp_path / "models", tmp_path / "pages", tmp_path / "wheels", list_row)
    here.pages.mkdir()
    monkeypatch.setattr(table, "named_pairs", lambda: tuple(rows))
    monkeypatch.setenv("SPECVIZ_MODELS", str(here.models))
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    use_no_proxy(monkeypatch)
    reach_nothing(monkeypatch)
    return here


def reach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_is_reachable", lambda: False)


@contextmanager
def reached_hub(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, cut: list[int] | None = None, **how: Any
) -> Iterator[list[str]]:
    """Make the hub answer inside the block; yields the list of downloads. cut, how: as in
    `fake_hub`."""
    models = {REPOSITORY: machine.pages}
    models |= {f"org/{folder.name}": folder for folder in machine.pages.iterdir()}
    with fake_hub(models, cut=cut, **how) as (address, given), monkeypatch.context() as patched:
        use_hub(address, patched)
        patched.setattr(hub, "hub_is_reachable", lambda: True)
        yield given


def publish(machine: Machine, row: NamedPair, *contents: bytes) -> None:
    """Put the files of a row onto the hub's page."""
    for file, content in zip(row.files, contents, strict=True):
        (machine.pages / file.name).write_bytes(content)


def fetched(row: NamedPair, source: Any = "hub", told: list[Progress] | None = None) -> None:
    """Fetch all files of a row."""
    plan = fetch_plan(row, source)
    assert plan is not None
    fetch(plan, None if told is None else told.append)


def test_a_pair_is_fetched_from_the_hub_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packed_row("toy", CONTENT, CONTENT[:5000])
    publish(machine, row, CONTENT, CONTENT[:5000])
    told: list[Progress] = []
    with reached_hub(machine, monkeypatch) as given:
        assert not at_hand(row)
        fetched(row, told=told)
        assert at_hand(row) and fetch_plan(row) is None
    assert given == [f"{REPOSITORY}/toy-0.gguf", f"{REPOSITORY}/toy-1.gguf"]
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT
    assert not [*machine.models.glob("*.part")]
    assert {one.sentence for one in told} >= {"downloading toy-0.gguf", "checking toy-1.gguf"}
    assert told[-1].fraction == 1.0


def test_a_fetch_goes_on_where_it_was_cut_off(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    monkeypatch.setattr(fetching, "TRIES", 0)
    with reached_hub(machine, monkeypatch, cut=[100_000, 0]) as given:
        with sentences.raises(PairError):
            fetched(row)
        assert find_file(row.files[0]) is None, "nothing reads what is not whole"
        assert (machine.models / "toy-0.gguf.part").read_bytes() == CONTENT[:100_000]
        plan = fetch_plan(row)
        assert plan is not None and plan.bytes == len(CONTENT) - 100_000
        fetch(plan)
    assert given[-1] == f"{REPOSITORY}/toy-0.gguf@100000"
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT


def test_a_broken_connection_is_opened_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    with reached_hub(machine, monkeypatch, cut=[1000, 2000, 0, 3000]) as given:
        fetched(row)
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT
    assert [name.partition("@")[2] for name in given] == ["", "1000", "3000", "3000", "6000"]


def test_a_hub_that_sends_a_file_from_its_start_again_gives_the_same_file(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    told: list[Progress] = []
    with reached_hub(machine, monkeypatch, cut=[200_000, 150_000], ranges=False) as given:
        fetched(row, told=told)
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT
    assert given == [f"{REPOSITORY}/toy-0.gguf"] * 3
    assert max(one.fraction or 0.0 for one in told) == 1.0


def test_a_busy_hub_is_asked_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    with reached_hub(machine, monkeypatch, busy=[503, 429, 408]):
        fetched(row)
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [CONTENT[::-1], CONTENT[:-1] + b"x", CONTENT + b"more"])
def test_what_has_another_checksum_is_deleted_and_never_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wrong: bytes, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, wrong)
    with reached_hub(machine, monkeypatch), sentences.raises(PairError):
        fetched(row)
    assert not [one for one in machine.models.iterdir() if one.suffix != ".lock"]


def test_a_file_that_the_hub_does_not_have_is_one_sentence(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    assert row.target_file is not None
    publish(machine, row, CONTENT)
    other = replace(row, target_file=replace(row.target_file, revision="f" * 40))
    with reached_hub(machine, monkeypatch), sentences.raises(PairError):
        fetched(other)


def test_without_a_hub_the_sentence_names_wheels(machine: Machine, sentences: Sentences) -> None:
    row = packed_row("toy", CONTENT)
    with sentences.raises(PairError):
        fetch_plan(row)
    assert row.target_file is not None
    without = replace(row, target_file=replace(row.target_file, wheels=None))
    with sentences.raises(PairError):
        fetch_plan(without)
    with sentences.raises(PairError):
        fetch_plan(without, "wheels")


def test_a_full_disk_is_told_before_and_while_a_file_is_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)

    def fail(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with reached_hub(machine, monkeypatch):
        with monkeypatch.context() as full:
            full.setattr(fetching, "_free_bytes", lambda _: 1_000_000)
            with sentences.raises(PairError):
                fetch_plan(row)
        with monkeypatch.context() as full:
            full.setattr(fetching.os, "fsync", fail)
            with sentences.raises(PairError):
                fetched(row)
        assert find_file(row.files[0]) is None
        fetched(row)
    assert find_file(row.files[0]) is not None


def test_a_folder_that_cannot_be_written_is_one_sentence(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    machine.models.write_text("a file in the place of the folder")
    with reached_hub(machine, monkeypatch), sentences.raises(PairError):
        fetched(row)


def only_these_wheels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find wheels only in the machine's folder, through pip's own variables."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(machine.wheels))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")


def test_a_pair_is_put_together_from_wheels_which_are_not_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    two_wheels = replace(PARTS, parts=2)  # pip takes half a second for each
    row = packed_row("toy", CONTENT, wheels=two_wheels)
    write_wheels(machine.wheels, CONTENT, two_wheels)
    only_these_wheels(machine, monkeypatch)
    told: list[Progress] = []
    fetched(row, "either", told)  # no hub answers
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT
    assert {one.name for one in machine.models.iterdir()} == {"toy-0.gguf", "toy-0.gguf.lock"}
    assert "fetching the wheels of toy-0.gguf" in {one.sentence for one in told}
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("toy-model-part1")


def test_wheels_that_came_are_kept_until_the_file_is_whole(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    first, second, third = write_wheels(machine.wheels, CONTENT)
    only_these_wheels(machine, monkeypatch)
    last = third.rename(machine.wheels.parent / third.name)
    with sentences.raises(PairError):
        fetched(row, "wheels")
    kept = machine.models / "toy-0.gguf.wheels"
    assert sorted(one.name for one in kept.iterdir()) == [first.name, second.name]
    # The wheel that pip was still writing when it was interrupted is fetched again, the other is
    # not.
    (kept / second.name).write_bytes(second.read_bytes()[:-100])
    first.unlink()
    last.rename(third)
    fetched(row, "wheels")
    assert (machine.models / "toy-0.gguf").read_bytes() == CONTENT
    assert not kept.exists()


def test_wheels_of_other_bytes_are_thrown_away(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    one_wheel = replace(PARTS, parts=1)
    row = packed_row("toy", CONTENT, wheels=one_wheel)
    only_these_wheels(machine, monkeypatch)
    write_wheels(machine.wheels, CONTENT + b"more", one_wheel)
    with sentences.raises(PairError):
        fetched(row, "wheels")
    assert not [one for one in machine.models.iterdir() if one.suffix != ".lock"]


def test_a_file_of_the_users_own_is_checked_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = machine.list_row(packed_row("toy", CONTENT, CONTENT[:5000]))
    machine.models.mkdir()
    for file, content in zip(row.files, (CONTENT, CONTENT[:5000]), strict=True):
        (machine.models / file.name).write_bytes(content)
    read: list[Path] = []
    whole = model_files.sha256_of

    def counted(path: Path, *more: Any) -> str:
        read.append(path)
        return whole(path, *more)

    monkeypatch.setattr(model_files, "sha256_of", counted)
    target = machine.models / "toy-0.gguf"
    draft = machine.models / "toy-1.gguf"
    told: list[Progress] = []
    for _ in range(3):
        assert fetch_plan(row, on_progress=told.append) is None
        assert named_files(NamedSpec("toy")) == (str(target), str(draft), row)
    assert sorted(read) == [target, draft]
    # A file with a remembered checksum has no sentence: a later step would seem to be the checking.
    assert [one.sentence for one in told] == ["checking toy-0.gguf", "checking toy-1.gguf"]
    # The target alone does not need the draft's file.
    draft.unlink()
    assert named_files(ModelsSpec("toy", None)) == (str(target), None, row)
    target.write_bytes(CONTENT[::-1])
    with sentences.raises(PairError):
        named_files(ModelsSpec("toy", None))
    publish(machine, row, CONTENT, CONTENT[:5000])
    with reached_hub(machine, monkeypatch):
        for size in (len(CONTENT), 5):
            target.write_bytes(CONTENT[::-1][:size])
            with sentences.raises(PairError):
                fetch_plan(row)
        assert target.read_bytes() == CONTENT[::-1][:5], "nobody else's file is replaced"


def test_a_damaged_file_in_the_programs_own_folder_is_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    monkeypatch.delenv("SPECVIZ_MODELS")
    own = model_files.models_folder() / "toy-0.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(CONTENT[::-1])
    with reached_hub(machine, monkeypatch):
        fetched(row)
    assert own.read_bytes() == CONTENT and fetch_plan(row) is None


def test_what_the_hubs_cache_has_is_not_fetched_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = packed_row("toy", CONTENT)
    publish(machine, row, CONTENT)
    with reached_hub(machine, monkeypatch):
        cached = huggingface_hub.hf_hub_download(REPOSITORY, "toy-0.gguf", revision=COMMIT)
    assert find_file(row.files[0]) == Path(cached)
    assert at_hand(row) and fetch_plan(row) is None
    Path(cached).resolve().write_bytes(CONTENT[:-1])
    assert not at_hand(row), "a part of it is not enough"


def test_two_programs_that_fetch_a_file_do_it_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    row = packed_row("toy", CONTENT)
    machine.models.mkdir()
    told: list[Progress] = []
    other = FileLock(machine.models / "toy-0.gguf.lock")
    with reached_hub(machine, monkeypatch) as given:
        with other:
            mine = threading.Thread(target=fetched, args=(row, "hub", told))
            mine.start()
            assert until(lambda: told)
            (machine.models / "toy-0.gguf").write_bytes(CONTENT)
        mine.join()
    sentences(told[0].sentence)
    assert given == []


def test_loading_fetches_what_is_missing_where_the_hub_answers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sentences: Sentences
) -> None:
    builtin = load_pair(BUILTIN)
    write_model(builtin.draft, builtin.tokenizer, tmp_path / "small.gguf")
    content = (tmp_path / "small.gguf").read_bytes()
    row = machine.list_row(packed_row("toy", content, content))
    publish(machine, row, content, content)
    with sentences.raises(PairError):
        load_pair("toy")
    told: list[Progress] = []
    with reached_hub(machine, monkeypatch) as given:
        pair = load_pair("toy", on_progress=told.append)
    assert pair.name == "toy" and pair.draft is not None and len(given) == 2
    assert "downloading toy-0.gguf" in {one.sentence for one in told}
    assert load_pair("toy+none").draft is None  # without a hub, from local files


def test_a_pair_of_the_hub_is_fetched_into_the_hubs_cache(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, good_pair: tuple[Path, Path]
) -> None:
    for name, folder in zip(("big", "small"), good_pair, strict=True):
        shutil.copytree(folder, machine.pages / name)
        (machine.pages / name / "pytorch_model.bin").write_bytes(b"a pickle")
    facts = [
        Facts(f"org/{name}", 1000, 8, 256, "mit", False, True, 900, "bfloat16")
        for name in ("big", "small")
    ]
    row = NamedPair("plain", facts[0], "A toy.", facts[1])
    with reached_hub(machine, monkeypatch) as given:
        assert not at_hand(row)
        fetched(row)
    assert at_hand(row)
    assert any("big/model.safetensors" in name for name in given)
    assert not any(".bin" in name for name in given), "pickles are never read"


def test_the_command_says_what_it_will_do_and_what_it_did(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sentences: Sentences,
) -> None:
    row = machine.list_row(packed_row("toy", CONTENT, CONTENT[:5000]))
    publish(machine, row, CONTENT, CONTENT[:5000])
    monkeypatch.setattr(fetching, "_free_bytes", lambda _: 20_000_000_000)
    with reached_hub(machine, monkeypatch):
        assert main(["fetch", "toy"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    sentences(first)
    sentences(last)
    assert main(["fetch", "toy"]) == 0
    sentences(capsys.readouterr().out.strip())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("builtin", 0),
        ("nonsense", 2),
        ("qwen2.5-coder-1.5b", 2),
        ("qwen3-8b-0.6b", 2),
        ("qwen3-8b-0.6b --from-wheels", 2),
        ("builtin --from-wheels --or-wheels", 2),
    ],
)
def test_what_cannot_be_fetched_is_one_sentence(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    status: int,
    sentences: Sentences,
) -> None:
    assert main(["fetch", *arguments.split()]) == status
    sentences("".join(capsys.readouterr()).strip())


def test_a_pair_that_is_one_package_is_installed_instead(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, sentences: Sentences
) -> None:
    monkeypatch.setattr(table, "wheel_file", lambda _: None)
    row = named_pair("smollm2-135m")
    assert row is not None
    with sentences.raises(PairError):
        fetch_plan(row, "wheels")


def test_the_list_says_what_is_here_and_what_must_be_fetched(
    machine: Machine, capsys: pytest.CaptureFixture[str], sentences: Sentences
) -> None:
    assert main(["pairs"]) == 0
    rows = capsys.readouterr().out.splitlines()
    (builtin,) = (line for line in rows if line.startswith("  builtin "))
    (coder,) = (line for line in rows if line.startswith("  qwen2.5-coder-1.5b "))
    assert " here " in builtin and " download 1.6 GB " in coder
    (last,) = (line for line in rows if "fetch NAME" in line)
    sentences(last)


def test_a_visitor_and_a_terminal_are_told_how_long_it_will_take(sentences: Sentences) -> None:
    told = Progress("downloading toy.gguf", 0.5, 200.0)

    def load(_: str, watcher: Callable[[Progress], None]) -> None:
        watcher(told)

    *_, sentence = Models(load, race=None).pair("toy")  # type: ignore[arg-type]
    sentences(sentence)
    terminal = Terminal()
    terminal_watcher(terminal)(told)
    sentences(terminal.getvalue())


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_published_pair_that_was_fetched_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, draft = fetched_files()
    monkeypatch.setenv("SPECVIZ_MODELS", str(target.parent))
    monkeypatch.delenv("SPECVIZ_PAIR")
    row = named_pair(fetched_pair.NAME)
    assert named_files(NamedSpec(fetched_pair.NAME)) == (str(target), str(draft), row)
    assert first_pair() in (fetched_pair.NAME, f"{fetched_pair.NAME}-bf16")
    assert [read_gguf(file).architecture for file in (target, draft)] == ["qwen2", "qwen2"]
