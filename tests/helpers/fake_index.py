"""Wheels that hold a file in parts, in a folder that pip uses as an index."""

from __future__ import annotations

import zipfile
from pathlib import Path

from specviz.files.model_files import WheelParts

PARTS = WheelParts("toy-model-part{}", "1.0", 3, "*/data/*.bin")


def write_wheels(folder: Path, content: bytes, wheels: WheelParts = PARTS) -> list[Path]:
    """Write a wheel for each part of `content`; returns their paths, in order."""
    size = -(-len(content) // wheels.parts)
    paths = []
    for number in range(1, wheels.parts + 1):
        piece = content[(number - 1) * size : number * size]
        paths.append(_write_wheel(folder, wheels, number, piece))
    return paths


def _write_wheel(folder: Path, wheels: WheelParts, number: int, piece: bytes) -> Path:
    package = wheels.package.format(number).replace("-", "_")
    info = f"{package}-{wheels.version}.dist-info"
    files = {
        # Importing it fails: only its data may be read.
        f"{package}/__init__.py": b"raise ImportError('nobody imports this')\n",
        f"{package}/data/piece.bin": piece,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {wheels.version}\n"
            "Requires-Dist: nothing-that-exists\n"
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{package}-{wheels.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return path
