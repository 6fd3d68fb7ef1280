"""The documented deployment: settings, the Space's front matter, the container."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from places import ROOT

from scripts import install
from scripts.lock import REQUIREMENTS, pins_in
from specviz.base.variables import variables_table
from specviz.pairs.table import facts, named_pairs

DEPLOY = (ROOT / "docs" / "deploy.md").read_text("utf-8")
CODE = [ROOT / "app.py", *sorted((ROOT / "specviz").rglob("*.py"))]
DOCKER = (ROOT / "Dockerfile").read_text("utf-8")
LOCKS = ("requirements.lock", "requirements-torch.lock")
FRONT = yaml.safe_load((ROOT / "README.md").read_text("utf-8").split("---\n", 2)[1])


def variables_in(text: str) -> set[str]:
    return set(re.findall(r"\bSPECVIZ_[A-Z_]+\b", text))


def test_every_setting_of_the_environment_is_listed() -> None:
    read = set().union(*(variables_in(path.read_text("utf-8")) for path in CODE))
    listed = variables_in(DEPLOY)
    assert read == listed


def test_the_documents_table_of_variables_is_the_programs() -> None:
    assert f"\n\n{variables_table()}\n" in DEPLOY, "put there what the verb `variables` prints"


def test_the_front_matter_is_complete() -> None:
    wanted = "title emoji colorFrom colorTo sdk sdk_version python_version app_file"
    wanted += " short_description suggested_hardware models tags thumbnail header license"
    assert not set(wanted.split()) - FRONT.keys()
    assert FRONT["header"] == "mini" and FRONT["python_version"] in ("3.10", "3.12")
    assert (ROOT / FRONT["thumbnail"]).is_file()


def test_the_space_names_only_models_that_need_no_licence_accepted() -> None:
    for name in FRONT["models"]:
        assert facts("models")[name].gated is False, name


def test_the_space_is_built_with_the_files_of_the_pair_that_it_opens_with() -> None:
    first = next(pair for pair in named_pairs() if pair.is_packed)
    for file in first.files:
        assert f"{file.repository} {file.name} {file.revision}" in FRONT["preload_from_hub"]


def test_make_run_fetches_the_pair_that_it_is_told_to_open() -> None:
    # Variables of an outer `make test` must not affect this one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def commands(*arguments: str) -> list[str]:
        told = ["make", "--dry-run", "run", "VENV=venv", "ARGS=", *arguments]
        done = subprocess.run(told, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if line.startswith(("venv", "SPECVIZ"))]

    assert commands("PAIR=") == ["venv/bin/python app.py "]
    assert commands("PAIR=qwen2.5-coder-1.5b") == [
        'venv/bin/python -m specviz fetch "qwen2.5-coder-1.5b" --or-wheels',
        'SPECVIZ_PAIR="qwen2.5-coder-1.5b" venv/bin/python app.py ',
    ]


def test_what_links_of_the_document_lead_to_exists() -> None:
    for name in re.findall(r"`((?:specviz|docs|assets)/[\w./-]+|requirements[\w-]*\.txt)`", DEPLOY):
        assert (ROOT / name).exists(), name


def test_the_container_gets_all_that_the_page_needs_and_no_more() -> None:
    rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*" and all((ROOT / name).exists() for name in kept)
    assert {"app.py", "assets", "specviz", *LOCKS} == kept
    assert f"ARG BASE=python:{FRONT['python_version']}-slim\nFROM ${{BASE}}\n" in DOCKER
    assert DOCKER.count("pip install") == 3 and DOCKER.count("--no-deps") == 3
    assert DOCKER.count("--require-hashes") == 2


def test_the_container_ends_is_watched_and_cannot_change_its_code() -> None:
    lines = DOCKER.splitlines()
    assert lines[-2:] == ['ENTRYPOINT ["tini", "--"]', 'CMD ["python", "app.py"]']
    assert "/healthz" in next(line for line in lines if line.startswith("HEALTHCHECK"))
    copied = [at for at, line in enumerate(lines) if line.startswith("COPY")]
    assert max(copied) < lines.index("USER page") and "--chown" not in DOCKER


def test_the_locks_pin_what_is_required_by_checksum() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins = {}
    for name in LOCKS:
        for pin in pins_in((ROOT / name).read_text("utf-8")):
            package, version = re.findall(r"^([\w.-]+)==([\w.]+)", pin)[0]
            assert "--hash=sha256:" in pin, package
            pins[package] = version
    lines = (ROOT / REQUIREMENTS).read_text("utf-8").splitlines()
    for wanted in (Requirement(line) for line in lines if line and not line.startswith("#")):
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), (
            f"{wanted}: run 'make lock'"
        )
    base = (ROOT / LOCKS[0]).read_text("utf-8")
    assert not re.search(r"^(torch|nvidia|triton)", base, re.MULTILINE)


def test_the_installer_asks_for_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: pytest.fail("a command ran"))
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/{name}")
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    assert not install.apt_install("chromium")


@pytest.mark.parametrize(
    ("pip_is_told", "broken", "installers"),
    [
        ("global.extra-index-url='https://more'", "", ["uv"]),
        ("global.index-url='https://mine'", "", ["pip"]),
        (":env:.no-index='1'", "", ["pip"]),
        ("", "uv>", ["pip"]),
        ("", "/uv", ["uv", "pip"]),
    ],
)
def test_the_installer_takes_torch_alone_from_its_index_and_the_rest_by_uv_or_pip(
    monkeypatch: pytest.MonkeyPatch, pip_is_told: str, broken: str, installers: list[str]
) -> None:
    ran: list[list[str]] = []

    def run(*parts: str | Path) -> bool:
        ran.append([str(part) for part in parts])
        return not broken or not any(broken in part for part in ran[-1])

    told = subprocess.CompletedProcess([], 0, stdout=pip_is_told)
    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: told)
    monkeypatch.setattr(install.shutil, "which", lambda _: None)
    install.install(Path("venv"), "requirements.txt")
    torch, *rest = ran
    assert torch[-1] == "torch" and "--no-deps" in torch
    assert torch[torch.index("--index-url") + 1] == install.CPU_INDEX
    assert not any("index" in part for command in rest for part in command)
    made = [command for command in rest if command[-2:] == ["-r", "requirements.txt"]]
    assert ["uv" if command[0].endswith("uv") else "pip" for command in made] == installers


@pytest.mark.parametrize("name", ["Dockerfile", ".dockerignore", "docs/deploy.md"])
def test_no_secret_is_written_down(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"hf_\w{8,}", text)
    assert not fnmatch.filter(text.splitlines(), "*TOKEN=[A-Za-z0-9]*")
