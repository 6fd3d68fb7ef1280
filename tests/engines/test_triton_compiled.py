"""Triton's kernels, compiled for a GPU that need not be present.

They are compiled in another process, because this one interprets kernels (`test_triton.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def test_no_kernel_spills_registers(tmp_path: Path):
    """The sizes are those of the published target. The GPU is an A100, where registers are
    scarcest."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "scripts.compile_kernels", "--gpu", "80"]
    made = subprocess.run(
        [*command, "--model", "qwen2.5-1.5b"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    rows = [line.split(" | ") for line in made.stdout.splitlines()[2:]]
    kernels = [row[1] for row in rows]
    assert kernels == [
        "embed",
        "queries_keys_values",
        "attend",
        "add_product",
        "gate_and_up",
        "add_product",
        "output_logits",
    ]
    copies_ahead = {row[1]: int(row[-1].rstrip(" |")) for row in rows}
    assert copies_ahead["gate_and_up"] > 0, "weights are copied ahead, 16 bytes at a time"
