"""The page's server: Gradio in server mode behind the page's guard."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Sequence
from inspect import Signature
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.types import Receive, Scope, Send

from ..base.environment import BUILTIN
from ..base.variables import AUTH, MCP
from ..pairs.table import NamedPair
from ..worker.client import ProcessWorker, Worker
from .api import add_api
from .audits import PageAudit
from .delivery import delivery_questions
from .doctor import Doctor, doctor_questions
from .document import inline_scripts, inline_styles
from .endpoints import Endpoints
from .failures import PageQuestion
from .fetches import PairFetch, fetch_questions
from .files import FileReader
from .follow_ups import follow_up_questions
from .live import add_run
from .local_pairs import look_ahead
from .offer import offer_of, presets_of
from .public import RECORDINGS
from .queue import RunQueue
from .routes import add_routes
from .security.addresses import Sites
from .security.answers import security_headers
from .security.connections import limit_connections
from .security.entrance import Entrance
from .security.guard import Guard
from .security.intake import Intake
from .security.password import Password
from .security.readings import Readings
from .security.requests import without_origin
from .security.sessions import MAX_EVENTS, Sessions
from .sweeps import sweep_questions

log = logging.getLogger(__name__)

IDLE = 0.02  # seconds between looks for new events
NO_PROGRESS = 1.0  # seconds between looks for news of progress bars; there are none
SESSIONS = 200  # clients' sessions that Gradio remembers; runs are not among them

DOCTOR_NICE = 10  # niceness of the doctor's process

NO_TOOLS = (
    "SPECVIZ_MCP is set, but MCP is not installed: the page starts without it. "
    "Install it with 'pip install -r requirements-mcp.txt'."
)
NOT_BOTH = "SPECVIZ_MCP and SPECVIZ_AUTH are both set: MCP has no password, so it stays off."


class Page(gr.Server):
    """The page. run_queue: its jobs. examiner: its doctor. sessions: those of Gradio's queue.
    programs: the parameters of endpoints by name, in Gradio's order. url: its address once it is
    served.
    """

    examiner: Doctor

    def __init__(self, queue: RunQueue) -> None:
        # FastAPI's own pages load scripts from another host.
        super().__init__(title="specviz", docs_url=None, redoc_url=None, openapi_url=None)
        sites = Sites.from_environment()
        name_and_password = AUTH.read()
        password = None
        if name_and_password is not None:
            password = Password(*name_and_password, is_framed=bool(sites.frames))
        self.run_queue = queue
        self.fetching = PairFetch(queue)
        self.password = password
        self.has_tools = _offers_tools(has_password=password is not None)
        self.url = ""
        self.reader = FileReader()
        self.sessions = Sessions(lambda: self.get_blocks()._queue)
        self.programs: dict[str, Signature] = {}
        self.entrance = Entrance(
            queue=queue, sites=sites, password=password, has_tools=self.has_tools
        )
        inside = without_origin(super().__call__)
        self.guard = Guard(
            super().__call__,
            entrance=self.entrance,
            readings=Readings(inside, self.sessions),
            intake=Intake(
                inside,
                sessions=self.sessions,
                reader=self.reader,
                password=password,
                programs=self.programs,
            ),
            policy=security_headers(inline_scripts(), inline_styles(), sites.frames),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.root_path:
            scope["root_path"] = self.root_path
        await self.guard(scope, receive, send)

    def serve(self, **options: Any) -> None:
        """Begin to serve the page, in a thread of its own. options: of Gradio's `launch()`. Raises
        what that raises."""
        _, self.url, self.entrance.shared = self.launch(
            prevent_thread_lock=True,
            mcp_server=self.has_tools,
            # An event that waits for its reader takes one of these threads.
            max_threads=MAX_EVENTS,
            state_session_capacity=SESSIONS,
            max_file_size="1b",
            enable_monitoring=False,
            ssr_mode=False,
            run_history=False,
            **options,
        )
        blocks = self.get_blocks()
        limit_connections(blocks.server.config)
        # Gradio looks for new events a thousand times a second, which would disturb engines.
        blocks._queue.sleep_when_free = IDLE
        blocks._queue.progress_update_sleep_when_free = NO_PROGRESS

    def close(self) -> None:
        """Stop serving, even if visitors keep connections open, and stop its fetch."""
        self.fetching.close()
        self.get_blocks().close(verbose=False)


def build_page(
    worker: Worker,
    *,
    pair: str = BUILTIN,
    recordings: Path = RECORDINGS,
    doctor: Worker | None = None,
    awaited: NamedPair | None = None,
) -> Page:
    """Build the page. `worker` decodes for it, `doctor` examines pairs; `pair` is loaded at once. A
    preset's recording is the file of its name in `recordings`, such as easy.json.gz. awaited: a
    pair that is not on this machine yet. Its recordings are shown, the page's own user can fetch it
    with one press, and then the page opens with it. Raises `SettingsError`.
    """
    _keep_no_statistics()
    queue = RunQueue(worker)
    page = Page(queue)
    # A race that is measured meanwhile must not share its cores with the doctor.
    examiner = Doctor(doctor or ProcessWorker(nice=DOCTOR_NICE))
    page.examiner = examiner
    page.fetching = PairFetch(queue, awaited)

    def offer() -> dict[str, Any]:
        missing = None
        if page.fetching.is_missing:
            missing = page.fetching.state()
        shown = queue.page_pair if awaited is None else awaited.name
        return offer_of(
            queue.page_pair,
            presets=presets_of(shown),
            recordings=recordings,
            machine=queue.machine,
            is_loading=queue.page_load is not None and not queue.page_load.is_ready,
            awaited=missing,
        )

    questions: Sequence[PageQuestion] = (
        *delivery_questions(queue),
        *follow_up_questions(queue, pair),
        *sweep_questions(queue, pair),
        *doctor_questions(examiner, pair),
        *fetch_questions(page.fetching, offer),
    )
    endpoints = Endpoints(page, page.sessions, page.programs)
    add_api(endpoints, queue, examiner, pair)
    add_run(page, queue, examiner.offers, pair)
    add_routes(
        page,
        questions=questions,
        offer=offer,
        recordings=recordings,
        password=page.password,
        programs=endpoints.described(),
        audit=PageAudit(),
    )
    queue.start(pair)
    look_ahead()
    return page


def _keep_no_statistics() -> None:
    """Make Gradio drop its statistics: otherwise it reads thousands of past events after each
    event."""
    os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1"
    os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(10**9)


def _offers_tools(*, has_password: bool) -> bool:
    """Whether the page serves MCP: the operator wants it, and it can be served."""
    if not MCP.read():
        return False
    if has_password:
        log.warning(NOT_BOTH)
        return False
    if importlib.util.find_spec("mcp") is None:
        log.warning(NO_TOOLS)
        return False
    return True
