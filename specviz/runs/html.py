"""A run as one HTML file that opens from disk: the page's player with the trace inside.

The file makes no requests: it contains the style sheets, the modules, the charts and the trace.
The modules are the page's: they import each other by names such as "specviz/run/store.js", which an
import map resolves, so there is no build step.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..base.environment import ASSETS
from ..core.events import SCHEMA
from ..core.policy import MAX_GAMMA
from .charts import CHARTS, all_figures
from .palette import PALETTE
from .vocabulary import vocabulary

if TYPE_CHECKING:
    from .trace import Trace

PAGE = ASSETS / "page"
ROOM = "specviz/"
"""The prefix of all module names."""
SERVED = ("specviz/choose/", "specviz/controls/", "specviz/page.js")
"""Modules that need a server: a run as one file leaves them out."""

_IMPORT = re.compile(r'^(?:import |(?:import|export) [^;"]* from )"([\w./-]+)";$', re.MULTILINE)
_SETTINGS_BUTTON = re.compile(r"<button[^>]*data-toggle-panel.*?</button>")
PLOTLY = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
PLAYER_SHEETS = (
    "player.css",
    "parts.css",
    "reading.css",
    "menus.css",
    "panels.css",
    "sizes.css",
    "stage.css",
    "explain.css",
    "compare.css",
    "whatif.css",
    "lanes.css",
    "phone.css",
    "moment.css",
    "print.css",
)
"""The styles of the player, on the page and in a file of its own."""
SHEETS = (*PLAYER_SHEETS, "standalone.css")
SMALL_SHEETS = (*SHEETS, "embed.css")
_SAFE = "!$&'()*+,-./:;=?@_~"
"""Characters that are not escaped in a data URL."""
MAX_TITLE = 80
"""Characters of a prompt in the title of a page."""

CONFIG: dict[str, Any] = {
    "links": {},
    "recordings": {},
    "defaults": {},
    "limits": {},
    "choices": {},
    "pairs": {},
    "controls": [],
    "questionsAt": "",
    "drafters": {},
    "presets": [],
    "questions": [],
    "drafterLabels": [],
    "whole": [],
    "mostPrompt": 0,
    "mostPacked": 0,
    "draws": 0,
    "titles": CHARTS,
    "schema": SCHEMA,
    "mostGamma": MAX_GAMMA,
}
"""The player's configuration: presets, recordings and limits exist only on the live page."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
<script type="importmap">{modules}</script>
<body class="{classes}">
<header class="sv-bar-top">{brand}<p class="sv-prompt"></p>{tools}</header>
<main>{player}</main>
<script type="application/json" id="config">{config}</script>
<script type="application/json" id="trace">{trace}</script>
<script type="text/plain" id="packed-trace">{packed_trace}</script>
<script type="text/plain" id="plotly">{plotly}</script>
<script type="module">{start}</script>
</body>
</html>
"""

# Only these scripts, the modules and Plotly, and no requests.
_POLICY = (
    "default-src 'none'; script-src {} data: blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src data:; base-uri 'none'; form-action 'none'"
)

_START = """
import { mount } from "specviz/player.js";
const read = (id) => document.getElementById(id).textContent;
if (matchMedia("(prefers-color-scheme: dark)").matches) document.body.classList.add("dark");
const unpacked = (text) => {
  const packed = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
};
const config = JSON.parse(read("config"));
const isPacked = read("packed-trace") !== "";
config.trace = isPacked ? await unpacked(read("packed-trace")).json() : JSON.parse(read("trace"));
const { prompt, question } = config.trace.header;
document.querySelector(".sv-prompt").textContent = question ?? prompt;
if (read("plotly") !== "") {
  const script = new Blob([await unpacked(read("plotly")).blob()], { type: "text/javascript" });
  config.plotly = URL.createObjectURL(script);
}
mount({ element: document.body, server: {}, config });
"""


_CELL = (
    '<iframe title="{title}" srcdoc="{page}" sandbox="allow-scripts allow-downloads" '
    'style="width: 100%; height: {height}px; border: 0"></iframe>'
)

# The policy of a cell's page, which allows no more than the page that it unpacks.
_CELL_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<script>
(async () => {{
  const packed = Uint8Array.from(atob("{packed}"), (one) => one.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const page = await new Response(unpacked).text();
  document.open();
  document.write(page);
  document.close();
}})();
</script>
"""

CELL_HEIGHT = 480  # px
ROW_HEIGHT = 210  # px, of each further row of two lanes
MAX_IN_CELL = 10_000
"""Tokens, drafted and emitted, of the longest run that a cell of a notebook plays."""


def cell_html(trace: Trace) -> str | None:
    """The small player of a run in a frame, for a cell of a notebook: about 300 kB, no requests.

    Its page is packed, and isolated from the notebook: cells cannot access each other, and a
    stranger's run cannot access the notebook. None for a run that is too long.
    """
    tokens = sum(len(r.drafted) + len(r.emitted) for r in trace.rounds)
    if tokens > MAX_IN_CELL:
        return None
    page = standalone_html(trace, is_small=True, is_packed_later=True)
    loader = _CELL_PAGE.format(
        policy=_POLICY.format("'unsafe-inline'"),
        packed=_packed(page.encode()),
    )
    further_rows = (len(trace.lanes) - 1) // 2
    return _CELL.format(
        title=html.escape(_page_title(trace)),
        page=html.escape(loader),
        height=CELL_HEIGHT + ROW_HEIGHT * further_rows,
    )


def embedded_html(trace: Trace) -> str:
    """The small player of a run, for a frame in an article: under 1 MB, without charts.

    Its trace is packed, since most of a long run's page would be the trace.
    """
    return standalone_html(trace, is_small=True)


def standalone_html(trace: Trace, *, is_small: bool = False, is_packed_later: bool = False) -> str:
    """The HTML page of a run; it opens from disk without a network and plays like the live page.

    is_small: only the race, its ratio and playback, in a page that fills a frame of any size.
    is_packed_later: leave compressible parts unpacked, since the caller packs the page.
    """
    address_of = _short_address
    if is_packed_later:
        address_of = _readable_address
    scripts = {}
    for name, path in modules().items():
        if not name.startswith(SERVED):
            scripts[name] = address_of(path)
    import_map = _json({"imports": scripts})
    config = CONFIG | {"vocabulary": vocabulary()}
    values = _json(trace.to_dict())
    sheets: Sequence[str]
    if is_small:
        sheets = SMALL_SHEETS
        classes = "sv-standalone sv-embed"
        plotly = ""
    else:
        config["figures"] = all_figures(trace)
        sheets = SHEETS
        classes = "sv-standalone"
        plotly = _packed_plotly()
    if is_small and not is_packed_later:
        plain_trace = ""
        packed_trace = _packed(values.encode())
    else:
        plain_trace = values
        packed_trace = ""
    script_hashes = f"{_script_hash(import_map)} {_script_hash(_START)}"
    return _PAGE.format(
        policy=_POLICY.format(script_hashes),
        title=html.escape(_page_title(trace)),
        style=css_variables() + styles(sheets),
        classes=classes,
        modules=import_map,
        brand=_read("brand.html").replace('href="."', ""),
        tools=_SETTINGS_BUTTON.sub("", _read("tools.html")),
        player=_read("player.html"),
        config=_json(config),
        trace=plain_trace,
        packed_trace=packed_trace,
        plotly=plotly,
        start=_START,
    )


def _short_address(path: Path) -> str:
    """A module as an address, as short as it gets."""
    return f"data:text/javascript;base64,{_base64(path.read_bytes())}"


def _readable_address(path: Path) -> str:
    """A module as an address in which its text can be read, and packed."""
    return f"data:text/javascript,{quote(path.read_text('utf-8'), safe=_SAFE)}"


def _page_title(trace: Trace) -> str:
    return f"specviz: {_title(trace.header.question or trace.header.prompt)}"


def _title(prompt: str) -> str:
    """The first words of a prompt in one line; a word that is longer than the line is cut."""
    line = " ".join(prompt.split())
    if len(line) <= MAX_TITLE:
        return line
    whole_words, space, _ = line[: MAX_TITLE + 1].rpartition(" ")
    beginning = whole_words if space else line[:MAX_TITLE]
    return beginning.rstrip(" .,;:") + "…"


def _script_hash(text: str) -> str:
    """The hash of a script in a page's policy."""
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def css_variables() -> str:
    """The palette as CSS variables, light and dark."""
    return f"{_rule(':root', PALETTE['light'])}\n{_rule('.dark', PALETTE['dark'])}"


def _rule(selector: str, colours: dict[str, str]) -> str:
    variables = "".join(f"--sv-{name}:{colour};" for name, colour in colours.items())
    return f"{selector}{{{variables}}}"


def styles(sheets: Sequence[str]) -> str:
    """The text of these style sheets, one after the other."""
    return "\n".join(_read(f"styles/{name}") for name in sheets)


def _read(name: str) -> str:
    return (PAGE / name).read_text("utf-8")


def _json(value: Any) -> str:
    """JSON for a script element: no text inside it can close the element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _packed(raw: bytes) -> str:
    """Bytes, gzipped and in base64."""
    return _base64(gzip.compress(raw, mtime=0))


@cache
def _packed_plotly() -> str:
    """Plotly's script, gzipped and in base64: a third of its size."""
    return _packed(PLOTLY.read_bytes())


def modules() -> dict[str, Path]:
    """The files of all modules by the name that others import, sorted."""
    paths = sorted(PAGE.rglob("*.js"))
    return {f"specviz/{path.relative_to(PAGE).as_posix()}": path for path in paths}


def imports() -> dict[str, set[str]]:
    """The static imports of each module, by module name."""
    imported = {}
    for name, path in modules().items():
        text = path.read_text("utf-8")
        imported[name] = set(_IMPORT.findall(text))
    return imported


def modules_asked_again(start: str = "specviz/page.js") -> dict[str, str]:
    """The texts of the modules that the page imports later, by their names below "specviz/".

    In these texts such modules import each other by relative addresses. A browser that loads one of
    them from a new folder therefore loads all of them from there, but none of the modules that the
    page began with: those are loaded, and hold the page's state.
    """
    first = set(first_modules(start))
    later = {name: path for name, path in modules().items() if path not in first}
    texts = {}
    for name, path in later.items():
        text = path.read_text("utf-8")
        texts[name.removeprefix(ROOM)] = _with_relative_imports(name, text, set(later))
    return texts


def _with_relative_imports(module: str, text: str, targets: set[str]) -> str:
    """Rewrite the imports of these targets as addresses relative to the module."""
    depth = len(PurePosixPath(module).parent.parts) - 1
    up = "../" * depth or "./"

    def rewritten(match: re.Match[str]) -> str:
        statement = match.group()
        name = match.group(1)
        if name not in targets:
            return statement
        return statement.replace(f'"{name}"', f'"{up}{name.removeprefix(ROOM)}"')

    return _IMPORT.sub(rewritten, text)


def first_modules(start: str = "specviz/page.js") -> list[Path]:
    """The files that the page needs before it can show anything."""
    paths = modules()
    graph = imports()
    needed = [start]
    for name in needed:  # which grows
        needed += sorted(graph[name] - set(needed))
    return [paths[name] for name in needed]
