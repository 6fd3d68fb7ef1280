"""What the HTML page gets before all scripts of Gradio: the names of the page's own modules, and
the end of a loop, so that an idle page does nothing.

The sign of loading that Gradio shows at first has a timer, which counts on in each frame when that
sign has long gone. No such timer is ever shown on this page.
"""

from __future__ import annotations

import re

from ...runs.modules import PAGE, served_map

NO_TIMER = b"""<script>
{
  const next = window.requestAnimationFrame.bind(window);
  const isTimer = (text) => text.length < 120 && /performance\\.now\\(\\)-.*1e3/.test(text);
  window.requestAnimationFrame = (then) => (isTimer(String(then)) ? 0 : next(then));
}
</script>"""
_BASE = re.compile(rb"<head>(?:\s*<(?:meta|base)\b[^>]*>)*")


def with_scripts(page: bytes) -> bytes:
    """The HTML page with both, behind the address that all others on it start from. Gradio keeps
    the timer that it finds, and a browser may ignore an import map behind the first module."""
    names = served_map(f"gradio_api/file={PAGE}/").encode()
    added = b'<script type="importmap">%s</script>%s' % (names, NO_TIMER)
    return _BASE.sub(lambda head: head.group() + added, page, count=1)
