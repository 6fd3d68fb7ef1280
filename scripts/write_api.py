"""Write the API reference: a page of HTML from the docstrings of the package's public names.

python -m scripts.write_api [--out build/api]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import pdoc

import specviz


def write_api(folder: Path) -> Path:
    """Write the reference into `folder`, made if it is missing; returns its page.

    Raises a `Warning` for a public name that cannot be documented.
    """
    for name in specviz.__all__:
        setattr(specviz, name, getattr(specviz, name))  # pdoc does not see names imported late
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pdoc.pdoc("specviz", "!specviz[.]", output_directory=folder)
    return folder / "specviz.html"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the API reference.")
    parser.add_argument("--out", type=Path, default=Path("build/api"), help="a folder")
    print(write_api(parser.parse_args().out))


if __name__ == "__main__":
    main()
