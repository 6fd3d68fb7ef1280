"""Write the lock files of the Docker image: every package that it needs, with one version and the
checksums of its files on PyPI.

    make lock        takes the newest versions that the requirement files allow

torch and the packages that only its CUDA build needs are in a separate file: an image without CUDA
installs another build of torch.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "3.12"  # of the image
REQUIREMENTS = "requirements.txt"
CUDA = re.compile(r"(torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==")
HEAD = "# Written by 'make lock'; only the Docker image is installed from this.\n"


def main() -> None:
    """Ask uv for the versions and write both files."""
    command = [sys.executable, "-m", "uv", "pip", "compile", REQUIREMENTS]
    command += ["--universal", "--generate-hashes", "--python-version", PYTHON]
    command += ["--no-header", "--no-annotate", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("lock: uv could not resolve the versions: see its message above.")
    pins = pins_in(done.stdout)
    cuda_pins = [pin for pin in pins if CUDA.match(pin)]
    other_pins = [pin for pin in pins if not CUDA.match(pin)]
    _write("requirements.lock", other_pins)
    _write("requirements-torch.lock", cuda_pins)


def _write(name: str, pins: list[str]) -> None:
    (ROOT / name).write_text(HEAD + "".join(pins), "utf-8")


def pins_in(text: str) -> list[str]:
    """The packages of a lock file: each a line with its version, and those of its checksums."""
    return re.findall(r"^[a-z].*\n(?:[ \t].*\n)*", text, re.MULTILINE)


if __name__ == "__main__":
    main()
