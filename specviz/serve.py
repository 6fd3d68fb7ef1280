"""The start of the page: its settings are checked, then the models' process begins, then the page
is built."""

from __future__ import annotations

import os
from typing import Any

from .environment import check_variables, on_zerogpu
from .logs import set_up_logging
from .worker.client import ProcessWorker, Worker
from .worker.process import end_with_children


def start_page() -> tuple[Worker, Any]:
    """The models' worker, started, and the page that asks it: Gradio's `Blocks`, not yet launched.

    To be called in the main thread, before Gradio or torch is imported: both read variables of the
    environment then. Raises `SettingsError` for a variable that is not valid, and `PairError` for a
    pair that ZeroGPU was to load.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # Idle worker threads must not spin on cores that the other lane or the browser needs.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    set_up_logging()
    check_variables()
    worker = _start_worker()
    from .page import build_page

    # On ZeroGPU only this process knows what the GPU will be like.
    return worker, build_page(worker, doctor=worker if on_zerogpu() else None)


def launch(page: Any) -> None:
    """Serve the page where GRADIO_SERVER_NAME and GRADIO_SERVER_PORT say, until it is ended."""
    from .page import launch_options

    end_with_children()
    page.launch(**launch_options())


def serve_page() -> None:
    """Start the page and serve it. Raises what `start_page` raises."""
    _, page = start_page()
    launch(page)


def _start_worker() -> Worker:
    """The worker for the models. Its start takes as long as the page's, so it begins first."""
    if on_zerogpu():
        # `spaces` has to be imported before anything touches CUDA, and this imports it.
        from .worker.zerogpu import load_pairs

        return load_pairs()
    worker = ProcessWorker()
    worker.start()
    return worker
