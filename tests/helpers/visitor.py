"""A browser window on the page, for the browser tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeAlias

from playwright.sync_api import Error, Locator, Page, Route, expect

from specviz import Trace, compute_metrics
from specviz.core.lanes import Lane
from specviz.runs.uncertainty import uncertainty

PATIENCE = 60_000  # ms; two busy cores are slow
expect.set_options(timeout=PATIENCE / 2)

# Timers that hide a notice or replay a finished run could fire while a test is stalled.
ALL_STAYS = """(() => {
  const wait = window.setTimeout;
  window.setTimeout = (then, ms, ...rest) =>
    ([8000, 2600].includes(ms) && !window.isHurried ? 0 : wait(then, ms, ...rest));
})()"""
# Draw every 70 ms instead of every 16 ms while a run plays, which otherwise takes half of a
# processor. All callbacks of a frame still run together, and the effect of an input is drawn in the
# next frame.
FEWER_FRAMES = """(() => {
  const next = window.requestAnimationFrame.bind(window);
  const isPlaying = () => document.querySelector("[data-player]")?.dataset.state === "running";
  let waiting = [];
  let last = 0;
  const draw = (now) => {
    const due = waiting;
    waiting = [];
    last = now;
    due.forEach((then) => then(now));
  };
  const hurry = () => {
    last = 0;
    if (waiting.length) next(draw);
  };
  ["input", "click", "keydown"].forEach((kind) => window.addEventListener(kind, hurry, true));
  window.requestAnimationFrame = (then) => {
    if (!waiting.length && !isPlaying()) return next(then);
    if (waiting.push(then) === 1) {
      setTimeout(() => next(draw), Math.max(0, last + 70 - document.timeline.currentTime));
    }
    return 0;
  };
})()"""
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# Waits at most `patience` ms for a condition.
AGAIN = """async ([arg, patience]) => {{
  const until = performance.now() + patience;
  const look = () => {{
    const found = ({holds});
    return typeof found === "function" ? found(arg) : found;
  }};
  let holds;
  while (!(holds = await look()) && performance.now() < until) {{
    await new Promise((resume) => setTimeout(resume, 25));
  }}
  return Boolean(holds);
}}"""

ADVANCED = ("Top-k", "Top-p")


def two_places(number: float | None) -> str:
    """Write a figure as the browser does: 0.625 as 0.63, which Python rounds to 0.62. None is a
    dash."""
    return "–" if number is None else str(Decimal(number).quantize(Decimal("0.01"), ROUND_HALF_UP))


def headline_of(trace: Trace, lane: Lane | None = None) -> str:
    """Return the ratio of a finished run as the page writes it: "?" if the machine was so busy that
    a round took less time than its target pass. lane: None is the first."""
    found = uncertainty(trace, lane)
    return "?" if found is None or found.doubt == "price" else two_places(speedup_of(trace, lane))


def speedup_of(trace: Trace, lane: Lane | None = None) -> float:
    speedup = compute_metrics(trace, lane).speedup
    assert speedup is not None
    return speedup


def wait_for(page: Page, holds: str, arg: Any = None, timeout: float = PATIENCE) -> None:
    """Wait until this condition holds in the page. Playwright's `wait_for_function` compiles it
    inside of the page, which the page's policy forbids."""
    deadline = time.monotonic() + timeout / 1000
    while True:
        with suppress(Error):  # a navigation replaced the page
            # The page polls: polling from here costs a hundred times more.
            if page.evaluate(
                AGAIN.format(holds=holds), [arg, 1000 * (deadline - time.monotonic())]
            ):
                return
        assert time.monotonic() < deadline, f"this did not become true: {holds}"
        page.wait_for_timeout(25)


def few_draws(route: Route) -> None:
    """Reduce the draws that the page asks for."""
    asked = route.request.post_data_json
    route.continue_(post_data={**asked, "draws": 40})


class Visitor:
    """A browser window on the page. problems: its errors, warnings and outside requests."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.player = page.locator("[data-player]")
        self.problems: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.add_init_script(ALL_STAYS)
        page.add_init_script(FEWER_FRAMES)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "blob:")):
            self.problems.append(f"outside request: {request.url}")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def lane(self, name: str) -> Locator:
        return self.page.locator(f"[data-lane={name}]")

    def ready(self) -> None:
        """Wait until the page can be used: first its player is ready, then its controls."""
        self.page.wait_for_selector("[data-player][data-ready]")
        self.page.wait_for_selector("#presets .preset[aria-pressed]", state="attached")
        self.drawn()

    def drawn(self) -> None:
        """Wait until all changes are drawn."""
        self.page.evaluate(FRAMES)

    def state(self, name: str) -> None:
        """Wait until the player is in this state."""
        expect(self.player).to_have_attribute("data-state", name, timeout=PATIENCE)

    def playing(self) -> None:
        """Wait until tokens are on the screen: a run begins before its first event is due."""
        self.state("running")
        expect(self.lane("baseline").locator("[data-index='0']")).to_be_attached()

    def set(self, label: str, value: float) -> None:
        """Write a number into a control of the settings panel."""
        self.settings()
        box = self.page.get_by_label(label)
        if any(name in label for name in ADVANCED):
            self.unfold()
        box.fill(str(value))
        box.blur()

    def settings(self) -> None:
        """Open the settings panel."""
        panel = self.page.locator("[data-toggle-panel]")
        if panel.get_attribute("aria-expanded") == "false":
            panel.click()

    def unfold(self) -> None:
        """Open the settings panel and its advanced part."""
        self.settings()
        part = self.page.locator("#advanced")
        if part.get_attribute("open") is None:
            part.locator("summary").click()

    def prompt(self, text: str) -> None:
        self.page.get_by_label("Prompt", exact=True).fill(text)

    def run(self) -> dict[str, Any]:
        """Press Run and wait for the end of the run; returns its trace."""
        self.begin(self.button("Run"))
        self.state("ended")
        return self.trace()

    def begin(self, button: Locator) -> None:
        """Press a button that begins a run, and wait until the page shows this run."""
        self.page.evaluate("void (window.before = window.specviz.trace)")
        button.click()
        wait_for(self.page, "window.specviz.trace && window.specviz.trace !== window.before")
        self.page.evaluate(FRAMES)

    def trace(self) -> dict[str, Any]:
        # As text: Playwright takes ten times as long to transfer the objects.
        trace: dict[str, Any] = json.loads(self.page.evaluate("JSON.stringify(specviz.trace)"))
        return trace


Visit: TypeAlias = Callable[..., Visitor]
