"""What the papers on deployment promise: settings, the Space's front matter, the container."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
import yaml

from specviz.environment import variables_table
from specviz.models.catalogue import known_model

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = (ROOT / "docs" / "deploy.md").read_text("utf-8")
CODE = [ROOT / "app.py", *sorted((ROOT / "specviz").rglob("*.py"))]
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
        facts = known_model(name)
        assert facts is not None and facts.gated is False, name


def test_what_links_of_the_document_lead_to_exists() -> None:
    for name in re.findall(r"`((?:specviz|docs|assets)/[\w./-]+|requirements[\w-]*\.txt)`", DEPLOY):
        assert (ROOT / name).exists(), name


def test_the_container_gets_all_that_the_page_needs_and_no_more() -> None:
    rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*" and all((ROOT / name).exists() for name in kept)
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    assert {"app.py", "assets", "specviz", "requirements.txt"} == kept
    assert FRONT["python_version"] in docker.splitlines()[0]
    assert "USER page" in docker and 'CMD ["python", "app.py"]' in docker


@pytest.mark.parametrize("name", ["Dockerfile", ".dockerignore", "docs/deploy.md"])
def test_no_secret_is_written_down(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"hf_\w{8,}", text)
    assert not fnmatch.filter(text.splitlines(), "*TOKEN=[A-Za-z0-9]*")
