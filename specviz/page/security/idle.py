"""A script in the HTML page that ends a loop of Gradio's, so that an idle page does nothing.

The sign of loading that Gradio shows at first has a timer, which counts on in each frame when that
sign has long gone. No such timer is ever shown on this page.
"""

from __future__ import annotations

SCRIPT = b"""<script>
{
  const next = window.requestAnimationFrame.bind(window);
  const isTimer = (text) => text.length < 120 && /performance\\.now\\(\\)-.*1e3/.test(text);
  window.requestAnimationFrame = (then) => (isTimer(String(then)) ? 0 : next(then));
}
</script>"""


def with_idle_frames(page: bytes) -> bytes:
    """The HTML page with the script before all others: Gradio keeps the function that it finds."""
    return page.replace(b"<head>", b"<head>" + SCRIPT, 1)
