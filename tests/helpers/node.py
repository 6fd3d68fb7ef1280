"""The page's pure JavaScript, called from Python without a browser."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import orjson
import pytest
from places import ROOT

MISSING = "node is missing: on Debian, 'apt-get install nodejs' installs it"
_SCRIPT = """
import {{ readFileSync }} from "node:fs";
import {{ asEnd, asHeader, asRound }} from "specviz/facts/trace.js";
import {{ learn }} from "specviz/facts/vocabulary.js";
learn(JSON.parse(readFileSync("assets/page/vocabulary.json", "utf8")));
const read = (_, value) => Array.isArray(value?.drafted) ? asRound(value)
  : value?.drafts ? asHeader(value) : value?.reasons ? asEnd(value) : value;
const answer = await ({function})(JSON.parse(readFileSync(0, "utf8"), read));
process.stdout.write(JSON.stringify(answer ?? null));
"""


def evaluated(function: str, value: Any = None) -> Any:
    """Call a JavaScript function of one value, like `Page.evaluate` of Playwright.

    The function may import the page's modules by name. Parts of a trace are converted as on the
    page. Skips the test if node is missing.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip(MISSING)
    done = subprocess.run(
        [node, "--input-type=module", "-e", _SCRIPT.format(function=function)],
        input=orjson.dumps(value),
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return orjson.loads(done.stdout)


def called(module: str, function: str, *values: Any) -> Any:
    """Call a function of a module of the page."""
    return evaluated(
        "async ([name, call, ...values]) => (await import(`specviz/${name}`))[call](...values)",
        [module, function, *values],
    )
