"""Requests to one server, and a sentence for everything that can go wrong with them."""

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
MOST_BYTES = 256 * 2**20  # of one answer: gamma 32 and a whole vocabulary of 150,000 take 200 MB
MOST_SHOWN = 200  # characters of what a server says in a sentence

DONE = b"[DONE]"
VERSION = re.compile(r"/v\d+$")
"""What ends the path of an interface."""

ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError)
"""What is raised where an answer has another form than the one that is read."""

Stream: TypeAlias = Generator[tuple[float, dict[str, Any]], None, None]
"""The chunks of a streamed answer, each with the seconds from the request to its arrival."""


class Reply(NamedTuple):
    """An answer and its cost. seconds: from the request's first byte to the answer's last, as this
    machine sees it. sent, received: bytes of the bodies."""

    value: Any
    seconds: float
    sent: int
    received: int


class Server:
    """A server that speaks OpenAI's protocol, over connections that are kept.

    where: its address with the key for it, or an address that takes none. transport: for tests.
    on_request: called before each request that is sent; what it raises prevents the request.
    answer_seconds: the longest silence of the server, `ANSWER_SECONDS` by default.
    Raises `ServerError` for what is no address.
    """

    def __init__(
        self,
        where: ServerAddress | str,
        transport: httpx.BaseTransport | None = None,
        *,
        on_request: Callable[[], None] | None = None,
        answer_seconds: float | None = None,
    ) -> None:
        self.address = ServerAddress(checked_url(where)) if isinstance(where, str) else where
        self._url, self._key = self.address.url, self.address.key
        self.shown = self.address.shown  # host and port, for sentences
        self._on_request = on_request
        self._answer_seconds = ANSWER_SECONDS if answer_seconds is None else answer_seconds
        self._client = httpx.Client(
            headers={
                "content-type": "application/json",
                **({"authorization": f"Bearer {self._key}"} if self._key else {}),
            },
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
        """The JSON at a path below the interface, or at "/path" beside it: of a GET, or of a POST
        with a body. Raises `ServerError`."""
        return self.post(path, body, query=query).value

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """The text at "/path" beside the interface, such as the server's counters. Raises
        `ServerError`."""
        reply = self.post(path, None, lambda raw: raw.decode("utf-8", "replace"), query)
        return str(reply.value)

    def post(
        self,
        path: str,
        body: dict[str, Any] | None,
        read: Callable[[bytes], Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Reply:
        """One POST, or a GET without a body, and its cost. read: makes a value of the answer; None
        reads it as JSON. Raises `ServerError`."""
        start = time.perf_counter()
        with self._begun(path, body, query) as response:
            raw = self._read(response)
            seconds = time.perf_counter() - start
            value = (read or parsed_json)(raw)
            return Reply(value, seconds, len(response.request.content), len(raw))

    def stream(self, path: str, body: dict[str, Any]) -> Stream:
        """The chunks of an answer as they come.

        A thread reads them, so that no work on one chunk delays the time of the next. Closing the
        generator ends the request. Raises `ServerError`, also for a failure that a chunk tells.
        """
        arrived: SimpleQueue[Any] = SimpleQueue()
        left = threading.Event()

        def read() -> None:
            try:
                with closing(self._chunks(path, body)) as chunks:
                    for chunk in chunks:
                        arrived.put(chunk)
                        if left.is_set():
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
            left.set()

    def _chunks(self, path: str, body: dict[str, Any]) -> Stream:
        start = time.perf_counter()
        with self._begun(path, body) as response:
            for data in event_data(self._lines(response)):
                if not data.strip() or data.strip() == DONE:
                    continue
                at = time.perf_counter() - start
                chunk = parsed_json(data)
                if not isinstance(chunk, dict):
                    raise ValueError
                if chunk.get("error"):  # some servers write "error": null in every chunk
                    said = _said(chunk, self._key)
                    raise ServerError(f"{self.shown} failed in mid-answer{said}.")
                yield at, chunk

    @contextmanager
    def _begun(
        self, path: str, body: dict[str, Any] | None, query: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """The answer to a question, once it begins, if it is no refusal.

        What httpx and parsers raise, also within, becomes a sentence, which holds neither key nor
        address but host and port.
        """
        content, method = (None, "GET") if body is None else (orjson.dumps(body), "POST")
        try:
            url = self._url.copy_with(path=self._whole_path(path), params=query)
            request = self._client.build_request(method, url, content=content)
            with closing(self._sent(request)) as response:
                if response.status_code != httpx.codes.OK:
                    raise self._refusal(path, response, self._read(response))
                yield response
        except (httpx.HTTPError, ValueError) as error:
            raise ServerError(self._fault(error)) from error

    def _whole_path(self, path: str) -> str:
        """The path on the host of "path" below the interface, or of "/path" beside it: both lie
        below the same prefix, if a reverse proxy or the server gives them one."""
        interface = self._url.path.rstrip("/")
        if path.startswith("/"):
            return VERSION.sub("", interface) + path
        return f"{interface}/{path}"

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """The answer once it begins. A server may end a kept connection while a request is on its
        way: the request is then sent again, once, on a new one."""
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
            if len(raw) > MOST_BYTES:
                raise ServerError(self._too_long())
        return bytes(raw)

    def _lines(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from lines_in(response.iter_bytes(), MOST_BYTES)
        except OverflowError as error:
            raise ServerError(self._too_long()) from error

    def _too_long(self) -> str:
        return (
            f"{self.shown} sent more than {MOST_BYTES // 2**20} MiB for one answer: use a smaller "
            "gamma, or top_k."
        )

    def _fault(self, error: Exception) -> str:
        if isinstance(error, httpx.TimeoutException):
            connecting = isinstance(error, httpx.ConnectTimeout)
            seconds = CONNECT_SECONDS if connecting else self._answer_seconds
            return (
                f"{self.shown} did not answer within {seconds:g} s: see whether the server is up "
                "and has loaded its model."
            )
        if any(isinstance(cause, ssl.SSLError) for cause in causes_of(error)):
            return (
                f"{self.shown} has a certificate that is not trusted here, or speaks no TLS: "
                "use http:// for a server without TLS, or set SSL_CERT_FILE."
            )
        if isinstance(error, (httpx.ConnectError, httpx.ProxyError)):
            return (
                f"no server answers at {self.shown}: start it, or check the address, and if a "
                "proxy is set HTTP_PROXY and NO_PROXY; the log of a server that has ended says why."
            )
        if isinstance(error, httpx.TransportError):
            return (
                f"{self.shown} ended the connection in mid-answer: see its log for the reason, and "
                "start it again if it has stopped."
            )
        return self.rubbish()

    def rubbish(self) -> str:
        """The sentence for an answer that is not what the protocol promises."""
        return (
            f"{self.shown} answered something else than OpenAI's protocol gives: check that the "
            "address ends in /v1 and leads to vLLM or a server like it."
        )

    def _refusal(self, path: str, response: httpx.Response, raw: bytes) -> ServerError:
        status, said = response.status_code, ""
        with suppress(ValueError):  # not JSON
            said = _said(parsed_json(raw), self._key)
        if status in (401, 403):
            return ServerError(
                f"{self.shown} refuses the key{'' if self._key else ', of which none was sent'}: "
                f"set {REMOTE_KEY.name} to one of its keys. Beside {REMOTE.name} it goes to the "
                "servers that are named there, and to no other."
            )
        if status == 429:
            return ServerError(f"{self.shown} has too many requests: start again in a minute.")
        if status in (404, 405, 501) and path.startswith("/"):
            return ServerError(
                f"{self.shown} answers nothing at {path}, beside its interface{said}: start a "
                "server that has it, and if a proxy stands before it let that pass it on."
            )
        if status in (404, 405, 501):
            return ServerError(
                f"{self.shown} does not know this model or address{said}: name one of its models, "
                "and let the address end in /v1."
            )
        if status < 500:
            return RefusedError(f"{self.shown} refused a request with status {status}{said}.")
        return ServerError(f"{self.shown} failed with status {status}{said}: see its log.")


def parsed_json(raw: bytes) -> Any:
    """The value of JSON in UTF-8, with or without a mark of the byte order. Raises `ValueError`."""
    return orjson.loads(raw.removeprefix(BOM))


class RefusedError(ServerError):
    """The server understood a request and rejects it."""


def _said(answer: Any, key: str | None) -> str:
    """What a server says about an error, cut short, as the end of a sentence; without the key."""
    error = answer.get("error", answer) if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str) or not text.strip():
        return ""
    plain = " ".join(text.split())
    if key:
        plain = plain.replace(key, "[key]")
    return f": {plain[:MOST_SHOWN].rstrip('.')}"
