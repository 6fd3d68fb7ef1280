"""Requests to one server, and one sentence for each way in which they can fail."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import httpx
import orjson

from ..base.errors import ServerError, causes_of
from ..base.variables import REMOTE, REMOTE_KEY
from .address import ServerAddress, checked_url
from .event_stream import BOM, event_data, lines_in

CONNECT_SECONDS = 5.0
KEPT_SECONDS = 2.0  # servers close idle connections after 5 s, some while a request is on its way
ANSWER_SECONDS = 60.0
MAX_BYTES = 256 * 2**20  # of one answer: gamma 32 and a whole vocabulary of 150,000 take 200 MB
MAX_SHOWN = 200  # characters of a server's message in a sentence

DONE = b"[DONE]"
VERSION = re.compile(r"/v\d+$")
"""The end of an interface's path."""

ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError)
"""Errors of reading an answer that does not have the expected form."""

Stream: TypeAlias = Generator[tuple[float, dict[str, Any]], None, None]
"""The chunks of a streamed answer, each with the seconds from the request to its arrival."""


class Reply(NamedTuple):
    """An answer and its cost.

    seconds: from the request's first byte to the answer's last, as this machine sees it.
    sent, received: bytes of the bodies.
    """

    value: Any
    seconds: float
    sent: int
    received: int


class Server:
    """A server that speaks OpenAI's protocol, over connections that are kept.

    where: its address with its key, or the URL of a server without a key.
    transport: for tests.
    on_request: called before each request is sent; an error from it prevents the request.
    answer_seconds: the longest silence of the server, `ANSWER_SECONDS` by default.

    Raises `ServerError` for an invalid address.
    """

    def __init__(
        self,
        where: ServerAddress | str,
        transport: httpx.BaseTransport | None = None,
        *,
        on_request: Callable[[], None] | None = None,
        answer_seconds: float | None = None,
    ) -> None:
        if isinstance(where, str):
            where = ServerAddress(checked_url(where))
        if answer_seconds is None:
            answer_seconds = ANSWER_SECONDS
        self.address = where
        self._url = where.url
        self._key = where.key
        self.shown = where.shown  # host and port, for sentences
        self._on_request = on_request
        self._answer_seconds = answer_seconds
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(self._answer_seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(keepalive_expiry=KEPT_SECONDS),
            transport=transport,
        )

    def ask(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Request the JSON at a path below the interface, or at "/path" outside it: by GET, or by
        POST with a body. Raises `ServerError`."""
        return self.post(path, body, query=query).value

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Request the text at "/path" outside the interface, such as the server's counters. Raises
        `ServerError`."""

        def text_of(raw: bytes) -> str:
            return raw.decode("utf-8", "replace")

        reply = self.post(path, None, text_of, query)
        return str(reply.value)

    def post(
        self,
        path: str,
        body: dict[str, Any] | None,
        read: Callable[[bytes], Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a POST, or a GET without a body, and return the answer with its cost. read: parses
        the answer; None parses JSON. Raises `ServerError`."""
        start = time.perf_counter()
        with self._response(path, body, query) as response:
            raw = self._read(response)
            seconds = time.perf_counter() - start
            parse = read or parsed_json
            sent = len(response.request.content)
            return Reply(parse(raw), seconds, sent, len(raw))

    def stream(self, path: str, body: dict[str, Any]) -> Stream:
        """The chunks of an answer as they arrive.

        A thread reads them, so that no work on one chunk delays the time of the next. Closing the
        generator ends the request. Raises `ServerError`, also for an error within a chunk.
        """
        arrived: SimpleQueue[Any] = SimpleQueue()
        closed = threading.Event()

        def read() -> None:
            try:
                with closing(self._chunks(path, body)) as chunks:
                    for chunk in chunks:
                        arrived.put(chunk)
                        if closed.is_set():
                            return
                arrived.put(None)
            except BaseException as error:
                arrived.put(error)

        threading.Thread(target=read, name="stream", daemon=True).start()
        try:
            while (chunk := arrived.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            closed.set()

    def _chunks(self, path: str, body: dict[str, Any]) -> Stream:
        start = time.perf_counter()
        with self._response(path, body) as response:
            for data in event_data(self._lines(response)):
                if data.strip() in (b"", DONE):
                    continue
                seconds = time.perf_counter() - start
                chunk = parsed_json(data)
                if not isinstance(chunk, dict):
                    raise ValueError
                if chunk.get("error"):  # some servers write "error": null in every chunk
                    message = _server_message(chunk, self._key)
                    raise ServerError(f"{self.shown} failed during its answer{message}.")
                yield seconds, chunk

    @contextmanager
    def _response(
        self, path: str, body: dict[str, Any] | None, query: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """The response, once its headers have arrived, unless the server refuses the request.

        Errors of httpx and of parsers, also inside the block, become sentences that name the host
        and port, but neither the key nor the whole address.
        """
        if body is None:
            method = "GET"
            content = None
        else:
            method = "POST"
            content = orjson.dumps(body)
        try:
            whole_path = self._whole_path(path)
            url = self._url.copy_with(path=whole_path, params=query)
            request = self._client.build_request(method, url, content=content)
            with closing(self._send(request)) as response:
                if response.status_code != httpx.codes.OK:
                    raise self._refusal(path, response, self._read(response))
                yield response
        except (httpx.HTTPError, ValueError) as error:
            raise ServerError(self._fault(error)) from error

    def _whole_path(self, path: str) -> str:
        """The path on the host of "path" below the interface, or of "/path" outside it. Both share
        the prefix that a reverse proxy or the server gives the interface."""
        interface = self._url.path.rstrip("/")
        if path.startswith("/"):
            return VERSION.sub("", interface) + path
        return f"{interface}/{path}"

    def _send(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response once it begins. A server may close a kept
        connection while a request is on its way: then the request is sent once more, on a new
        connection."""
        try:
            return self._send_once(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return self._send_once(request)

    def _send_once(self, request: httpx.Request) -> httpx.Response:
        if self._on_request is not None:
            self._on_request()
        return self._client.send(request, stream=True)

    def _read(self, response: httpx.Response) -> bytes:
        raw = bytearray()
        for piece in response.iter_bytes():
            raw += piece
            if len(raw) > MAX_BYTES:
                raise ServerError(self._too_long())
        return bytes(raw)

    def _lines(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from lines_in(response.iter_bytes(), MAX_BYTES)
        except OverflowError as error:
            raise ServerError(self._too_long()) from error

    def _too_long(self) -> str:
        return (
            f"{self.shown} sent more than {MAX_BYTES // 2**20} MiB in one answer: use a smaller "
            "gamma, or top_k."
        )

    def _fault(self, error: Exception) -> str:
        if isinstance(error, httpx.TimeoutException):
            is_connecting = isinstance(error, httpx.ConnectTimeout)
            seconds = CONNECT_SECONDS if is_connecting else self._answer_seconds
            return (
                f"{self.shown} did not answer within {seconds:g} s: check that the server is "
                "running and has loaded its model."
            )
        if any(isinstance(cause, ssl.SSLError) for cause in causes_of(error)):
            return (
                f"{self.shown} has an untrusted certificate, or does not use TLS: use http:// for "
                "a server without TLS, or set SSL_CERT_FILE."
            )
        if isinstance(error, (httpx.ConnectError, httpx.ProxyError)):
            return (
                f"no server answers at {self.shown}: start it, or check the address, and with a "
                "proxy also HTTP_PROXY and NO_PROXY; if the server has stopped, its log says why."
            )
        if isinstance(error, httpx.TransportError):
            return (
                f"{self.shown} closed the connection during its answer: see its log for the "
                "reason, and restart it if it has stopped."
            )
        return self.rubbish()

    def rubbish(self) -> str:
        """The sentence for an answer that breaks the protocol."""
        return (
            f"{self.shown} sent an answer that does not follow OpenAI's protocol: check that the "
            "address ends in /v1 and leads to vLLM or a similar server."
        )

    def _refusal(self, path: str, response: httpx.Response, raw: bytes) -> ServerError:
        status = response.status_code
        message = ""
        with suppress(ValueError):  # not JSON
            message = _server_message(parsed_json(raw), self._key)
        if status in (401, 403):
            fault = "rejects the key" if self._key else "needs a key, and none was sent"
            return ServerError(
                f"{self.shown} {fault}: set {REMOTE_KEY.name} to one of its keys. If "
                f"{REMOTE.name} is set, the key is sent only to the servers named there."
            )
        if status == 429:
            return ServerError(f"{self.shown} has too many requests: try again in a minute.")
        if status in (404, 405, 501) and path.startswith("/"):
            return ServerError(
                f"{self.shown} has no endpoint {path} outside its /v1 interface{message}: use a "
                "server that has it, and if a proxy is in front of the server, let it forward "
                "this path."
            )
        if status in (404, 405, 501):
            return ServerError(
                f"{self.shown} does not know this model or address{message}: use one of its "
                "models, and an address that ends in /v1."
            )
        if status < 500:
            return RefusedError(f"{self.shown} refused a request with status {status}{message}.")
        return ServerError(f"{self.shown} failed with status {status}{message}: see its log.")


def parsed_json(raw: bytes) -> Any:
    """Parse JSON in UTF-8, with or without a byte order mark. Raises `ValueError`."""
    return orjson.loads(raw.removeprefix(BOM))


class RefusedError(ServerError):
    """The server understood a request and rejects it."""


def _server_message(answer: Any, key: str | None) -> str:
    """The server's message about an error, cut short, as the end of a sentence and without the
    key."""
    if not isinstance(answer, dict):
        return ""
    message = answer.get("error", answer)
    if isinstance(message, dict):
        message = message.get("message")
    if not isinstance(message, str) or not message.strip():
        return ""
    plain = " ".join(message.split())
    if key:
        plain = plain.replace(key, "[key]")
    return f": {plain[:MAX_SHOWN].rstrip('.')}"
