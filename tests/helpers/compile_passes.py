"""Compiled passes, made once for all processes of a run of tests.

numba keeps compiled code next to the sources. In a fresh clone every process would find nothing
there, and spend half a minute on the same compilation.
"""

from __future__ import annotations

import gc
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
CHECKOUT = sha256(bytes(ROOT)).hexdigest()[:12]
LOCK = Path(tempfile.gettempdir()) / f"passes-{CHECKOUT}.lock"
KINDS_LOCK = Path(tempfile.gettempdir()) / f"kinds-{CHECKOUT}.lock"
TESTS_LOCK = Path(tempfile.gettempdir()) / f"tests-{CHECKOUT}.lock"


def are_compiled() -> bool:
    """Check whether an earlier process compiled the passes, or at least began to."""
    return any(KEPT.glob("*.nbi"))


def begin() -> None:
    """Start the compilation in a separate process, unless it was done before."""
    if not are_compiled():
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen([sys.executable, __file__], cwd=ROOT, **quiet)


@cache
def wait() -> None:
    """Wait until the passes of the built-in pair are compiled, if that process runs."""
    with FileLock(LOCK):
        pass


@cache
def wait_for_kinds() -> None:
    """Wait until the products of all kinds of weights are compiled too."""
    with FileLock(KINDS_LOCK):
        pass


def lock_of_test_files() -> FileLock:
    """The lock of the process that compiles the test files for all others."""
    return FileLock(TESTS_LOCK)


def compile_passes() -> None:
    """Compile what a race of the built-in pair calls."""
    import_module("gradio")  # so that its own modules are compiled as well
    from specviz import load_pair, race

    pair = load_pair("builtin")
    for drafter in ("model", "head"):
        list(race(pair, "Once", drafter=drafter, max_new_tokens=4))


def compile_kinds() -> None:
    """Compile the products of every kind of weights, as GGUF files hold them."""
    from specviz.files.few_bits.blocks import KINDS, PACKED
    from specviz.files.few_bits.products import product_code
    from specviz.sides.fast_cpu.integer_products import integer_product_code

    for kind in KINDS.values():
        product_code(kind)
    for kind in PACKED:
        integer_product_code(kind)


def main() -> None:
    """Compile everything, while others wait for the locks."""
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(ROOT))
    gc.disable()  # a compiler's many objects are kept until it ends
    with FileLock(KINDS_LOCK):
        if are_compiled():  # by the process whose lock this one waited for
            return
        with FileLock(LOCK):
            compile_passes()
        compile_kinds()


if __name__ == "__main__":
    main()
