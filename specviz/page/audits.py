"""The audit of the operator's server on the page: the last report, and a form that begins one. An
audit sends a thousand requests and more, so only the user of the page's own machine may begin it,
and only one runs at a time. This page needs no script.
"""

from __future__ import annotations

import logging
import threading
from html import escape

from ..audit.html import audit_html, page_html
from ..audit.report import AuditReport
from ..base.errors import PairError, SpecvizError
from ..base.variables import REMOTE
from ..pairs.spec import WatchedSpec, operator_spec
from ..worker.failures import FAILED

log = logging.getLogger(__name__)

MINUTES = 1.0
HEADING = "Audit of this page's server"
QUESTION = "Is it speculating, is it paying, is it lossless?"
NOTHING = (
    f"This page has no server to audit: set {REMOTE.name} to a server that speculates itself, such "
    "as http://HOST:8000/v1#MODEL."
)
NOT_YOURS = (
    "Only a visitor on the page's own machine may start an audit: in a terminal, "
    "'python -m specviz audit' does the same."
)
FORM = '<form method="post" action="audit"><button>{}</button></form>'
REFRESH = '<meta http-equiv="refresh" content="2">'


class PageAudit:
    """The audit of the server that SPECVIZ_REMOTE names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._step = ""
        self._error: str | None = None
        self._report: AuditReport | None = None

    def begin(self) -> None:
        """Begin an audit unless one is running, or there is no server."""
        spec = watched_server()
        with self._lock:
            if spec is None or self._is_running:
                return
            self._is_running = True
            self._step = "Asking the server."
            self._error = None
        thread = threading.Thread(target=self._audit, args=(spec,), name="audit", daemon=True)
        thread.start()

    def html(self, *, may_begin: bool) -> str:
        """The page: an audit's progress, or the last report. may_begin: whether its reader may
        begin one."""
        if watched_server() is None:
            return page_html(HEADING, NOTHING, "")
        if self._is_running:
            step = _paragraph(self._step) + f"<p>It takes about {MINUTES:g} minute.</p>"
            return page_html(HEADING, QUESTION, step, REFRESH)
        if self._report is not None:
            form = _paragraph(NOT_YOURS)
            if may_begin:
                form = FORM.format("Audit it again")
            return audit_html(self._report, form)
        if not may_begin:
            return page_html(HEADING, QUESTION, _paragraph(NOT_YOURS))
        form = FORM.format("Audit it")
        if self._error is not None:
            form = _paragraph(self._error) + form
        return page_html(HEADING, QUESTION, form)

    def _audit(self, spec: WatchedSpec) -> None:
        # It imports torch, which a page without an audit does not need.
        from ..audit.auditing import audit_server

        baseline: str | None = None
        if spec.alone is not None:
            baseline = str(spec.alone)
        try:
            self._report = audit_server(
                str(spec.engine), baseline=baseline, minutes=MINUTES, on_progress=self._note
            )
        except SpecvizError as error:
            self._error = str(error)
        except Exception:
            log.exception("an audit failed")
            self._error = FAILED
        finally:
            self._is_running = False

    def _note(self, sentence: str) -> None:
        self._step = sentence


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def watched_server() -> WatchedSpec | None:
    """The operator's server if it speculates by itself, else None."""
    if REMOTE.read() is None:
        return None
    try:
        spec = operator_spec()
    except PairError:
        return None
    if not isinstance(spec, WatchedSpec):
        return None
    return spec
