"""The page from its start to its end: settings and address are checked, then the models' process
begins, then the page is built and served until somebody ends it."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import queue
import signal
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from unittest.mock import patch

from ..base.environment import on_zerogpu
from ..base.errors import SettingsError
from ..base.logs import adopt_libraries, set_up_logging
from ..base.variables import DRAIN_SECONDS, LOG, check_variables
from ..pairs.opening import awaited_pair, first_pair
from ..pairs.table import operator_pairs
from ..worker.client import ProcessWorker, Worker, end_processes

if TYPE_CHECKING:
    from .server import Page

log = logging.getLogger(__name__)

HOST = "GRADIO_SERVER_NAME"
PORT = "GRADIO_SERVER_PORT"
"""Gradio's own variables, which would change the port that was asked for."""


def start_page() -> tuple[Worker, Page]:
    """The models' worker, started, and the page that asks it, which is not served yet.

    To be called in the main thread, before Gradio or torch is imported: both read variables of the
    environment then. Raises `SettingsError` for a variable that is not valid or an address that is
    taken, and `PairError` for a pair that ZeroGPU cannot load.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # Idle worker threads must not spin on cores that the other lane or the browser needs.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    check_variables()
    set_up_logging()
    operator_pairs()
    pair = first_pair()
    host, port = address()
    _check_free(host, port)
    os.environ[PORT] = str(port)  # Gradio's import fails on an empty one
    # The first process of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    worker = _start_worker()
    _import_gradio()
    from .server import build_page

    # On ZeroGPU only this process knows what the GPU will be like.
    if on_zerogpu():
        return worker, build_page(worker, pair=pair, doctor=worker)
    return worker, build_page(worker, pair=pair, awaited=awaited_pair())


def _import_gradio() -> None:
    """Import Gradio, but keep it from rewriting its type stubs, which is half of its import."""
    with patch("inspect.getfile", side_effect=OSError):
        import gradio  # noqa: F401


def launch(page: Page) -> None:
    """Serve the page until SIGTERM or Ctrl-C. To be called in the main thread.

    After SIGTERM no run begins, the current one has `SPECVIZ_DRAIN_SECONDS` to end, and then this
    returns. Ctrl-C ends everything at once. Raises `SettingsError` if the address is taken.
    """
    from .delivery import drain

    # Only this kind of queue is safe in a signal handler.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, _: signals.put(number))
    host, port = address()
    try:
        page.serve(server_name=host, server_port=port, quiet=LOG.read() == "json")
    except OSError as error:
        if "empty port" not in str(error):
            raise
        raise _port_taken(port) from None
    adopt_libraries()
    log.info("the page is served at %s", page.url)
    try:
        signals.get()
        drain(page.run_queue, DRAIN_SECONDS.read())
    except KeyboardInterrupt:
        pass
    finally:
        end_processes()
        page.close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the page to a parser."""
    parser.description = "Serve the page; its settings are environment variables."
    parser.add_argument("--host", help=f"address to listen on (default: {HOST}, else 127.0.0.1)")
    parser.add_argument("--port", help=f"port to listen on (default: {PORT}, else 7860)")


def serve_page(options: argparse.Namespace) -> None:
    """Start the page and serve it; options override environment variables. Raises as `start_page`
    and `launch` do."""
    if options.host is not None:
        os.environ[HOST] = options.host
    if options.port is not None:
        os.environ[PORT] = options.port
    _, page = start_page()
    launch(page)


def address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """The host and the port to listen on. Raises `SettingsError` for an invalid port."""
    host = environment.get(HOST) or "127.0.0.1"
    port = environment.get(PORT) or "7860"
    is_short_number = port.isascii() and port.isdigit() and len(port) < 9
    if not is_short_number or not 1 <= int(port) <= 65535:
        raise SettingsError(f"{PORT} is {port[:40]!r}: use a whole number from 1 to 65535.")
    return host, int(port)


def _check_free(host: str, port: int) -> None:
    """Raise `SettingsError` if this machine cannot listen there."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, socket_address = addresses[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(socket_address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _port_taken(port) from None
        raise SettingsError(
            f"The page cannot listen on {host!r}, port {port} ({error.strerror}): set {HOST} to "
            f"an address of this machine and {PORT} to a port that this user may open."
        ) from None


def _port_taken(port: int) -> SettingsError:
    return SettingsError(
        f"Port {port} is taken: end the program that listens there, or set {PORT} to another port "
        "(--port)."
    )


def _start_worker() -> Worker:
    """Start the models' worker. That takes as long as the page's own start, so it begins first."""
    if on_zerogpu():
        # `spaces` has to be imported before anything touches CUDA, and this imports it.
        from ..worker.zerogpu import load_pairs

        return load_pairs()
    worker = ProcessWorker()
    worker.start()
    return worker
