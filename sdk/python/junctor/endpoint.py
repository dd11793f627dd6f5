"""Endpoints: servers of the capability-router protocol whose modules join junctor's catalog."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http.server
import inspect
import io
import ipaddress
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from . import _json, _router
from ._router import WireError, wire_error
from .errors import CODES, DECODE_FAILED, REQUEST_FAILED, UNAVAILABLE, Error
from .module import Handler, Module

__all__ = ["Endpoint", "Server"]

_log = logging.getLogger("junctor.endpoint")

_BODY_TIMEOUT = 30.0
_PACE = 64 << 10  # the slowest caller, in bytes a second
_IDLE_TIMEOUT, _HEAD_TIMEOUT = 60.0, 30.0
_LINGER_TIMEOUT, _MAX_LINGER = 2.0, 8 << 20
_MAX_CONNECTIONS = 256


@dataclass
class _Answer:
    """A response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class _Call:
    """A call whose handler has not run. ``finish`` and ``fail`` make the response."""

    def __init__(self, method: str, module: Module, function: Handler, params: Mapping[str, Any], asset: _Request | None) -> None:
        self.method, self.module, self.asset = method, module, asset
        self.run: Callable[[], Any] = lambda: function(params)

    def finish(self, value: Any) -> _Answer:
        result = _router.decode_result(self.method, _plain(value))
        if self.asset is not None:
            return _asset_answer(result, self.asset)
        return _Answer(200, b'{"ok":true,"result":' + _json.dumps(result) + b"}")

    def fail(self, err: BaseException) -> _Answer:
        match err:
            case WireError():
                wire = err
                if wire.details and wire.details.get("reason") == "decode_failed":
                    wire.message = f"{self.module.id} answered against the protocol: {wire.message}"
            case Error():
                wire = wire_error(err, self.method)
            case asyncio.CancelledError() | TimeoutError():
                wire = wire_error(Error("timeout" if isinstance(err, TimeoutError) else "cancelled", "the handler was ended"), self.method)
            case _:
                # The text of the error may hold what the caller must not see.
                _log.error("a handler of %s failed", self.method, exc_info=err)
                wire = wire_error(Error("failed", f"{self.module.id} failed in {self.method}"), self.method)
        wire.method = self.method if self.method not in wire.method else wire.method
        if self.asset is not None:
            wire.status = CODES.get((wire.details or {}).get("code", ""), (502, ""))[0]
        return _error_answer(wire)


def _plain(value: Any) -> Any:
    """Return dataclasses and enumerations inside a result as JSON values."""
    return json.loads(_json.dumps(value))


def _error_answer(err: WireError) -> _Answer:
    try:
        body = _json.dumps(err.envelope())
    except (TypeError, ValueError):
        body = _json.dumps(WireError(REQUEST_FAILED, "the error could not be encoded").envelope())
    out = _Answer(err.status, body)
    if err.status == 401:
        out.headers["WWW-Authenticate"] = "Bearer"
    return out


@dataclass
class _Request:
    """A request without its body."""

    method: str
    path: str  # escaped, without the query
    authorization: str
    if_none_match: str = ""
    page: bool = False  # a browser sent it: no page can leave out or change the headers that show it
    open: bool = False  # assets may be imported from any origin


def _asset_answer(file: Mapping[str, Any], request: _Request) -> _Answer:
    body = base64.b64decode(file["bodyBase64"])
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    out = _Answer(200, body, file["contentType"], {"ETag": etag, "Cache-Control": "no-cache"})
    if request.open:
        out.headers["Access-Control-Allow-Origin"] = "*"
    if "integrity" in file:
        out.headers[_router.HEADER_INTEGRITY] = file["integrity"]
    given = [t.strip().removeprefix("W/") for t in request.if_none_match.split(",")]
    if etag in given or "*" in given:
        out.status, out.body = 304, b""
    return out


class Endpoint(Module):
    """An endpoint: a module with the server of the protocol.

    It offers the module that it is and those of :meth:`include`. :meth:`serve` runs it with
    threads of the standard library; the endpoint is also an ASGI application. Handlers may be
    sync or async. A handler raises :class:`junctor.Error` to choose the code that the caller
    receives; the text of any other exception is logged and not sent.

    ``max_body`` bounds the body of a request in bytes.
    """

    def __init__(self, id: str, *, token: str = "", max_body: int = _router.MAX_BODY, **module: Any) -> None:
        super().__init__(id, **module)
        self._modules: list[Module] = [self]
        self._token = b""
        self.token = token
        self.max_body = max_body

    @property
    def token(self) -> str:
        """The bearer token of the callers. If empty, every program is accepted, but no web page."""
        return self._token.decode()

    @token.setter
    def token(self, value: str) -> None:
        self._token = value.strip().encode()

    def __repr__(self) -> str:
        return f"Endpoint({self.id!r})"

    def include(self, module: Module) -> None:
        """Offer a further module."""
        if any(m.id == module.id for m in self._modules):
            raise ValueError(f"the module id {module.id!r} is given twice")
        self._modules.append(module)

    # ---- One request -------------------------------------------------------

    def _authorized(self, request: _Request) -> WireError | None:
        if not self._token:
            if request.page and not request.path.startswith(_router.PATH_ASSETS):
                return WireError(UNAVAILABLE, "this endpoint has no token, and takes no calls of web pages", status=403,
                                 method=request.path[:200], details={"code": "denied", "reason": "page_refused"})
            return None
        scheme, _, given = request.authorization.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token):
            return WireError(UNAVAILABLE, "this endpoint needs a valid bearer token", status=401, method=request.path[:200],
                             details={"code": "unauthenticated"})
        return None

    def _admit(self, request: _Request) -> WireError | None:
        """Check everything that is known before the body, so that a body is only read from callers."""
        if refused := self._authorized(request):
            return refused
        if request.path == _router.PATH_INVOKE and request.method == "POST" or request.method in ("GET", "HEAD") and (
                request.path.startswith(_router.PATH_ASSETS) or request.path == _router.PATH_AVAILABILITY and request.method == "GET"):
            return None
        return WireError(UNAVAILABLE, f"nothing is served at {request.method} {request.path}"[:300], status=404, method=request.path[:200],
                         details={"code": "not_found"})

    def _plan(self, request: _Request, body: bytes) -> _Answer | _Call:
        """Return the response, or the call that makes it."""
        try:
            if request.path == _router.PATH_AVAILABILITY:
                flags = {"fs": False, "pty": False, "git": False, "model": False, "plugin": True}
                return _Answer(200, _json.dumps({"environment": "server", "available": True, "capabilities": flags}))
            if request.method != "POST":
                module, path = _router.parse_asset_url(request.path[len(_router.PATH_ASSETS):])
                request.open = not self._token
                return self._invoke("plugin.asset.get", {"moduleId": module, "path": path}, request)
            try:
                call = _json.loads(body, max_depth=_router.MAX_DEPTH)
            except (ValueError, RecursionError) as err:
                raise WireError(DECODE_FAILED, f"the request is not JSON: {err}"[:300], status=400, method=request.path,
                                details={"code": "invalid_input"}) from None
            if not isinstance(call, dict) or not isinstance(call.get("method"), str):
                raise WireError(DECODE_FAILED, 'the request needs a text "method"', status=400, method=request.path,
                                details={"code": "invalid_input"})
            if call["method"] == "plugin.modules.list":
                return self._list(call.get("params"))
            return self._invoke(call["method"], call.get("params"), None)
        except WireError as err:
            return _error_answer(err)

    def _list(self, params: Any) -> _Answer:
        _router.decode_params("plugin.modules.list", params)
        result = _router.decode_result("plugin.modules.list", {"modules": [m.manifest() for m in self._modules]})
        body = _json.dumps(result)
        if len(body) > _router.MAX_MANIFEST:
            raise WireError(REQUEST_FAILED, f"the manifest has {len(body)} bytes, the limit is {_router.MAX_MANIFEST}")
        return _Answer(200, b'{"ok":true,"result":' + body + b"}")

    def _invoke(self, method: str, params: Any, asset: _Request | None) -> _Call | _Answer:
        if method in _router.OTHER_METHODS:
            raise wire_error(Error("unavailable", f"this endpoint does not offer {method}", reason="family_not_offered"), method)
        known = _router.decode_params(method, params)
        module = next((m for m in self._modules if m.id == known["moduleId"]), None)
        try:
            if module is None:
                raise Error("unknown_capability", f"this endpoint has no module {known['moduleId'][:200]!r}")
            return _Call(method, module, module._call(method, known), known, asset)
        except Error as err:
            wire = wire_error(err, method)
            if asset is not None:
                wire.status = CODES[err.code][0]
            raise wire from None

    # ---- http.server -------------------------------------------------------

    def start(self, host: str = "127.0.0.1", port: int = 0, *, max_connections: int = _MAX_CONNECTIONS) -> Server:
        """Start a server in threads and return it.

        An address that others can reach needs a token.
        """
        if not self._token and not _loopback(host):
            raise ValueError("an endpoint that others can reach needs a token; give Endpoint a token, or listen on 127.0.0.1")
        self.manifest()
        return Server(self, host, port, max_connections)

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, max_connections: int = _MAX_CONNECTIONS) -> None:
        """Serve until the process is interrupted. The address is printed as one line of JSON."""
        with self.start(host, port, max_connections=max_connections) as server:
            print(json.dumps({"url": server.url, "baseUrl": server.url, "moduleIds": [m.id for m in self._modules]}), flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.wait()

    # ---- ASGI --------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any],
            Awaitable[None]]) -> None:
        """Serve one ASGI request. Sync handlers run in threads."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            return await send({"type": "lifespan.shutdown.complete"})
        if scope["type"] != "http":
            raise ValueError(f"an endpoint does not serve {scope['type']}")
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        raw = scope.get("raw_path") or scope["path"].encode()
        path = raw.decode("latin-1").partition("?")[0]
        if root := scope.get("root_path"):
            path = path.removeprefix(root)
        request = _Request(scope["method"], path, headers.get("authorization", ""), headers.get("if-none-match", ""),
                           "origin" in headers or "sec-fetch-site" in headers)
        answer = await self._answer_async(request, receive, headers.get("content-length", ""))
        out = {"content-type": answer.content_type, "content-length": str(len(answer.body)), "x-content-type-options": "nosniff",
               **{k.lower(): v for k, v in answer.headers.items()}}
        await send({"type": "http.response.start", "status": answer.status,
                    "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in out.items()]})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})

    async def _answer_async(self, request: _Request, receive: Callable[[], Awaitable[Any]], length: str) -> _Answer:
        if refused := self._admit(request):
            return _error_answer(refused)
        try:
            body = b""
            if request.method == "POST":
                if length.isascii() and length.isdigit() and int(length[:19]) > self.max_body:
                    raise _too_large(self.max_body, request.path)
                body = await self._body_async(request, receive)
        except WireError as err:
            return _error_answer(err)
        plan = self._plan(request, body)
        if isinstance(plan, _Answer):
            return plan
        try:
            value = await asyncio.to_thread(plan.run)
            return plan.finish(await value if inspect.isawaitable(value) else value)
        except Exception as err:
            return plan.fail(err)

    async def _body_async(self, request: _Request, receive: Callable[[], Awaitable[Any]]) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_TIMEOUT + self.max_body / _PACE):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _incomplete(request.path)
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.max_body:
                        raise _too_large(self.max_body, request.path)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise _incomplete(request.path) from None


def _too_large(limit: int, path: str) -> WireError:
    return WireError(DECODE_FAILED, f"the request body exceeds the limit of {limit} bytes", status=413, method=path,
                     details={"code": "too_large"})


def _incomplete(path: str) -> WireError:
    return WireError(REQUEST_FAILED, "the request body could not be read", status=400, method=path,
                     details={"code": "invalid_input", "reason": "incomplete_body"})


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """A running endpoint. It is a context manager whose end closes it."""

    def __init__(self, endpoint: Endpoint, host: str, port: int, max_connections: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._loop.run_forever, name="junctor-endpoint-async", daemon=True)
        self._loop_thread.start()
        slots = threading.BoundedSemaphore(max_connections)

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def process_request(self, request: Any, address: Any) -> None:
                if not slots.acquire(timeout=5):
                    return self.shutdown_request(request)
                try:
                    super().process_request(request, address)
                except BaseException:
                    slots.release()
                    raise

            def process_request_thread(self, request: Any, address: Any) -> None:
                try:
                    super().process_request_thread(request, address)
                finally:
                    slots.release()

            def handle_error(self, request: Any, address: Any) -> None:
                if not isinstance(sys.exception(), OSError):
                    _log.error("a connection failed", exc_info=True)

        class Requests(_RequestHandler):
            served = endpoint
            loop = self._loop

        try:
            self._listener = Listener((host, port), Requests)
        except BaseException:
            self._stop_loop()
            raise
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._listener.server_address[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.1,), name="junctor-endpoint", daemon=True)
        self._thread.start()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join(5)
        if not self._loop.is_running():
            self._loop.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> None:
        """Wait until the server is closed."""
        while self._thread.is_alive():
            self._thread.join(1)

    def close(self) -> None:
        """Close the server. Calls that run are not waited for."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join(5)
        self._stop_loop()


class _Paced(io.RawIOBase):
    """The bytes of a connection, with a deadline. A request gets one when its first byte arrives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline: float | None = None

    def readable(self) -> bool:
        """Report that bytes can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes. It raises TimeoutError after the deadline."""
        left = _IDLE_TIMEOUT if self.deadline is None else self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        size = self._connection.recv_into(buffer)
        if self.deadline is None:
            self.deadline = time.monotonic() + _HEAD_TIMEOUT
        return size


class _RequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Endpoint
    loop: asyncio.AbstractEventLoop
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for head and body
    server_version, sys_version = "junctor", ""

    def setup(self) -> None:
        """Read the connection with deadlines."""
        super().setup()
        self.rfile.close()
        self._paced = _Paced(self.connection)
        self.rfile = io.BufferedReader(self._paced)

    def handle_one_request(self) -> None:
        """Serve one request, whose first byte may come after a while."""
        self._paced.deadline = None
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a path may hold what belongs to a caller."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request with the envelope of the protocol."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = getattr(self, "request_version", None) or "HTTP/1.1"
        self._send(_error_answer(WireError(DECODE_FAILED, "the request is not HTTP", status=code, details={"code": "invalid_input"})))

    def _send(self, answer: _Answer) -> None:
        self.connection.settimeout(_BODY_TIMEOUT + len(answer.body) / _PACE)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and answer.status != 304:
            self.wfile.write(answer.body)
        self.wfile.flush()

    def _handle(self) -> None:
        request = _Request(self.command, self.path.partition("?")[0], self.headers.get("Authorization", ""),
                           self.headers.get("If-None-Match", ""), "Origin" in self.headers or "Sec-Fetch-Site" in self.headers)
        if request.path.startswith(("http://", "https://")):
            request.path = urlsplit(request.path).path
        if refused := self.served._admit(request):
            return self._refuse(refused)
        try:
            body = self._body(request)
        except WireError as err:
            return self._refuse(err)
        plan = self.served._plan(request, body)
        if isinstance(plan, _Answer):
            return self._send(plan)
        try:
            value = plan.run()
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(_awaited(value), self.loop).result()
            answer = plan.finish(value)
        except Exception as err:
            answer = plan.fail(err)
        self._send(answer)

    def _refuse(self, err: WireError) -> None:
        """Send a refusal. A body that was not read is discarded for a moment, so that the caller can read the refusal."""
        unread = self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers
        self.close_connection = self.close_connection or unread
        self._send(_error_answer(err))
        if not unread:
            return
        self._paced.deadline = time.monotonic() + _LINGER_TIMEOUT
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            for _ in range(_MAX_LINGER >> 16):
                if not self.rfile.read1(1 << 16):  # type: ignore[attr-defined]
                    return

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _handle

    def _body(self, request: _Request) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise WireError(DECODE_FAILED, "the request needs a Content-Length", status=411, method=request.path,
                details={"code": "invalid_input"})
        lengths = self.headers.get_all("Content-Length") or ["0"]
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise WireError(DECODE_FAILED, "the Content-Length is malformed", status=400, method=request.path,
                details={"code": "invalid_input"})
        size = int(lengths[0][:19])
        if size > self.served.max_body:
            raise _too_large(self.served.max_body, request.path)
        self._paced.deadline = time.monotonic() + _BODY_TIMEOUT + size / _PACE
        parts: list[bytes] = []
        while size:
            try:
                piece = self.rfile.read1(min(size, 1 << 16))  # type: ignore[attr-defined]
            except OSError:
                raise _incomplete(request.path) from None
            if not piece:
                raise _incomplete(request.path)
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
