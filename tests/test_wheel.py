"""An installed wheel behaves like the repository, from any folder and without the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_page import address_of_forks, forked_page
from forked_process import run_forked
from gradio_client import Client
from places import ROOT

from specviz.base.environment import ASSETS
from specviz.runs.html import first_modules
from specviz.runs.recording import read_recording

pytestmark = pytest.mark.skipif(
    not (ASSETS / "pair" / "target").is_dir(), reason="no built-in pair here"
)
SOURCES = ("specviz", "assets", "pyproject.toml", "setup.py", "README.md", "LICENSE")
UNUSED = shutil.ignore_patterns("__pycache__", "pictures")
MODULES = [path.relative_to(ASSETS) for path in sorted((ASSETS / "page").rglob("*.js"))]
RECORDINGS = [path.name for path in sorted((ASSETS / "recordings").iterdir())]


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with an installed wheel, built from a copy of the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for path in [*(ROOT / name for name in SOURCES), *ROOT.glob("requirements*.txt")]:
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, source / path.name, **({"ignore": UNUSED} if path.is_dir() else {}))
    # As in a virtual environment: servers may refuse names that begin with a dot.
    place = folder / ".venv" / "site-packages"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    options = ["--no-deps", "--no-build-isolation", "--no-compile", "--quiet", "--target", place]
    options += ["--config-settings", "--build-option=--compression=stored"]  # saves seconds
    subprocess.run([*pip, *options, source], check=True, timeout=120)
    shutil.rmtree(source)
    return place


@pytest.fixture(scope="module")
def elsewhere(site_packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which Python finds the installed package and not the repository."""
    folder, start = (tmp_path_factory.mktemp(name) for name in ("elsewhere", "start"))
    # Compiling passes in a new folder takes most of a minute, so everything runs on transformers'
    # modules.
    (start / "sitecustomize.py").write_text("import sys; sys.modules['numba'] = None")
    # Other files use this process too, so it must start before these variables are set.
    address_of_forks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(start), str(site_packages)]))
        patch.setenv("HF_HUB_OFFLINE", "1")
        found = output_of(folder, "-c", WHERE)
        assert Path(found.strip()) == site_packages / "specviz" / "__init__.py"
        yield folder


WHERE = "from importlib.util import find_spec; print(find_spec('specviz').origin)"
INSTALLED = """
import os
import runpy
import sys

folder, repository, site_packages, lines = {given}
os.chdir(folder)
sys.modules["numba"] = None
sys.path[:] = [path for path in sys.path if path not in ("", repository)]
import specviz
assert os.path.dirname(specviz.__file__) == os.path.join(site_packages, "specviz")
"""
"""Code that checks and uses the installed package, in a process forked from one with the
libraries."""

VERBS = (
    INSTALLED
    + """
from specviz.__main__ import main
sys.exit(any([main(line) for line in lines]))
"""
)
COMMAND = (
    INSTALLED
    + """
sys.argv = [os.path.join(site_packages, "bin", "specviz"), *lines[0]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
)
"""Code that runs the wheel's command."""


@pytest.fixture(scope="module")
def url(site_packages: Path, elsewhere: Path) -> Iterator[str]:
    """The page, started by the wheel's command in a folder where the models' process might find
    another package named specviz."""
    other = elsewhere / "project" / "specviz"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('not this one')")
    script = elsewhere / "page.py"
    given = (str(other.parent), str(ROOT), str(site_packages), [["page"]])
    script.write_text(COMMAND.format(given=given))
    with forked_page(script) as url:
        yield url


def output_of(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


OWN_FOLDERS = ("smollm2-135m", "qwen2.5-coder-1.5b")


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def test_the_wheel_holds_all_that_the_program_reads(site_packages: Path) -> None:
    wanted = {"py.typed", "assets/pairs.json"}
    wanted |= {str(path.relative_to(ROOT / "specviz")) for path in ROOT.glob("specviz/**/*.py")}
    for folder in ("page", "pair", "heads", "prompts", "recordings", *OWN_FOLDERS):
        files = [path for path in (ASSETS / folder).rglob("*") if path.is_file()]
        assert files
        wanted |= {f"assets/{path.relative_to(ASSETS)}" for path in files}
    package = site_packages / "specviz"
    held = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert held == wanted
    top = {path.name for path in site_packages.iterdir() if path.suffix != ".dist-info"}
    assert top == {"specviz", "bin"}, "nothing else is put among other packages"


def test_its_command_is_a_program(site_packages: Path, elsewhere: Path) -> None:
    assert "doctor" in output_of(elsewhere, str(site_packages / "bin" / "specviz"), "--help")


def test_the_pair_races_the_doctor_knows_it_and_a_recording_is_read(
    site_packages: Path, elsewhere: Path
) -> None:
    saved = elsewhere / "run.json.gz"
    recording = site_packages / "specviz" / "assets" / "recordings" / RECORDINGS[0]
    lines = (
        ["run", "Once upon a time", "--max-new-tokens", "6", "--out", str(saved)],
        ["doctor", "builtin"],
        ["check", str(recording)],
    )
    script = VERBS.format(given=(str(elsewhere), str(ROOT), str(site_packages), lines))
    done = run_forked([sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    raced, _, rest = done.stdout.partition("identical to the baseline")
    assert raced and "target" in rest and RECORDINGS[0] in rest
    assert read_recording(saved.read_bytes()).header.target["name"]


def test_the_page_serves_its_modules_styles_and_recordings(url: str, site_packages: Path) -> None:
    page = fetched(url).decode()
    sheet = fetched(f"{url}/style.css").decode()
    assert (ASSETS / "page" / "styles" / "player.css").read_text("utf-8") in sheet
    # The page requests modules of its first view at once, and all others when a visitor opens them.
    first = {path.relative_to(ASSETS) for path in first_modules()}
    assert {Path("page/player.js"), Path("page/charts/live.js")} <= first < set(MODULES)
    (version,) = set(re.findall(r'href="page/(v-\w+)/[^"]+\.js"', page))
    for module in MODULES:
        address = f"page/{version}/{module.relative_to('page').as_posix()}"
        assert (f'href="{address}"' in page) == (module in first), module
        assert fetched(f"{url}/{address}") == (ASSETS / module).read_bytes()
    for name in RECORDINGS:
        address = f"recordings/{name}"
        assert address in page
        assert fetched(f"{url}/{address}") == (ASSETS / "recordings" / name).read_bytes()
    for preset in json.loads((ASSETS / "pair" / "presets.json").read_text("utf-8")):
        assert json.dumps(preset["name"]) in page


def test_the_page_runs_the_built_in_pair(url: str) -> None:
    result = Client(url, verbose=False).predict(
        "Once upon a time", max_new_tokens=4, api_name="/generate"
    )
    assert result["metrics"]["tokens"]["baseline"] == 4
