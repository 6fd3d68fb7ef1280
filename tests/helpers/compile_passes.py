"""Compiled passes, made once for all processes of a run of tests.

numba keeps what it compiled beside the sources. In a fresh clone every process would find nothing
there, and compile the same for half a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from filelock import FileLock
from places import ROOT

KEPT = ROOT / "specviz" / "sides" / "fast_cpu" / "__pycache__"
LOCK = Path(tempfile.gettempdir()) / f"passes-{sha256(bytes(ROOT)).hexdigest()[:12]}.lock"


def begin() -> None:
    """Begin to compile in a process of its own, unless that was done before."""
    if not any(KEPT.glob("*.nbi")):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen([sys.executable, __file__], cwd=ROOT, **quiet)


@cache
def wait() -> None:
    """Until that process has ended, if it runs."""
    with FileLock(LOCK):
        pass


if __name__ == "__main__":
    with FileLock(LOCK):
        os.environ["OMP_NUM_THREADS"] = "1"
        sys.path.insert(0, str(ROOT))
        import_module("gradio")  # so that its own modules are compiled as well
        from specviz import load_pair, race

        pair = load_pair("builtin")
        for drafter in ("model", "head"):
            list(race(pair, "Once", drafter=drafter, max_new_tokens=4))
