"""A small HTTP/1.1 client with bounds, over http.client."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from . import _json
from .errors import Error

MAX_ANSWER = 64 << 20
_MAX_FAILURE = 1 << 20
_MAX_IDLE = 8
_IDLE_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 10.0


class Flight:
    """The request that a thread is making, so that another thread can end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.ended = threading.Event()

    def adopt(self, sock: socket.socket | None) -> None:
        """Remember the socket of the request. It raises Error if the flight has ended."""
        with self._lock:
            if self.ended.is_set():
                raise Error("cancelled", "the call was cancelled")
            self._socket = sock

    def end(self) -> None:
        """Break the request off."""
        with self._lock:
            self.ended.set()
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended by itself

    def sleep(self, seconds: float) -> None:
        """Wait. It raises Error as soon as the flight ends."""
        if self.ended.wait(seconds):
            raise Error("cancelled", "the call was cancelled")


class Response:
    """One response whose body has not been read."""

    def __init__(self, owner: Transport, conn: http.client.HTTPConnection, sock: socket.socket | None,
                 raw: http.client.HTTPResponse, deadline: float | None, idle: float) -> None:
        self._owner, self._conn, self._sock, self._raw, self._deadline = owner, conn, sock, raw, deadline
        self._idle = idle
        self.status = raw.status

    def _piece(self, size: int) -> bytes:
        if self._raw.isclosed():
            return b""
        if self._sock is not None:
            self._sock.settimeout(self._idle if self._deadline is None else remaining(self._deadline))
        return self._raw.read1(size)

    def read(self, limit: int = MAX_ANSWER) -> bytes:
        """Read the whole body and release the connection."""
        parts: list[bytes] = []
        size = 0
        try:
            while piece := self._piece(1 << 16):
                parts.append(piece)
                size += len(piece)
                if size > limit:
                    raise Error("too_large", f"the answer is larger than {limit} bytes")
            if self._raw.length:
                raise http.client.IncompleteRead(b"")
        except (OSError, http.client.HTTPException) as err:
            self.close()
            raise self._owner.unreachable(err) from None
        except BaseException:
            self.close()
            raise
        self._raw.close()  # the connection stays open
        self._owner.release(self._conn, self._raw)
        return b"".join(parts)

    def lines(self, limit: int = MAX_ANSWER) -> Iterator[bytes]:
        """Yield the lines of the body that are not blank, and close the connection."""
        buffer = b""
        try:
            while piece := self._piece(1 << 16):
                *whole, buffer = (buffer + piece).split(b"\n")
                for line in whole:
                    if line.strip():
                        yield line
                if len(buffer) > limit:
                    raise Error("too_large", f"a line of the answer is larger than {limit} bytes")
            if buffer.strip():
                yield buffer
        except (OSError, http.client.HTTPException) as err:
            raise self._owner.unreachable(err) from None
        finally:
            self.close()

    def failure(self) -> Error:
        """Read the body of a refusal and return its error."""
        try:
            data = self.read(_MAX_FAILURE)
        except Error:
            data = b""
        return failure(self.status, data)

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()
        self._conn.close()


class Transport:
    """Connections to one server. It follows no redirects, because they would receive the token."""

    def __init__(self, url: str, token: str, agent: str, ca_file: str | None) -> None:
        parts = urlsplit(url.rstrip("/"))
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password \
                or port == -1 or parts.query or parts.fragment:
            raise Error("invalid_input", "the URL of the server must be http or https, with a host and without a user or password",
                        hint="write http://127.0.0.1:7777")
        if any(c in token for c in "\r\n\0") or not token.isascii():
            raise Error("invalid_input", "the token has characters that a token cannot have")
        self.base = url.rstrip("/")
        self._host, self._port, self._path = parts.hostname, port, parts.path
        self._headers = {"User-Agent": agent}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_file)
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._closed = False
        self._local = threading.local()

    @property
    def flight(self) -> Flight | None:
        """The flight of the calling thread."""
        return getattr(self._local, "flight", None)

    @flight.setter
    def flight(self, value: Flight | None) -> None:
        self._local.flight = value

    def sleep(self, seconds: float) -> None:
        """Wait, at most until the flight of the calling thread ends."""
        if self.flight is not None:
            self.flight.sleep(seconds)
        else:
            time.sleep(seconds)

    def send(self, method: str, path: str, body: bytes | None, *, content_type: str = "application/json",
             accept: str = "application/json", deadline: float | None = None, idle: float = 300.0,
             headers: Mapping[str, str] | None = None) -> Response:
        """Send one request and return the response when its header has arrived.

        Without a deadline, idle bounds the time between two pieces of the response.
        """
        fields = {**self._headers, "Accept": accept, **(headers or {})}
        if body is not None:
            fields["Content-Type"] = content_type
        while True:
            conn, reused = self._connection()
            sock: socket.socket | None = None
            try:
                if not reused:
                    conn.timeout = min(_CONNECT_TIMEOUT, remaining(deadline) or _CONNECT_TIMEOUT)
                    conn.connect()
                sock = conn.sock
                if self.flight is not None:
                    self.flight.adopt(sock)
                sock.settimeout(idle if deadline is None else remaining(deadline))
                conn.request(method, self._path + path, body=body, headers=fields)
                raw = conn.getresponse()
            except (OSError, http.client.HTTPException) as err:
                conn.close()
                # The server may close a connection while it is idle. Only a read is sent again.
                if reused and method == "GET" and not isinstance(err, TimeoutError):
                    continue
                raise self.unreachable(err) from None
            except BaseException:
                conn.close()
                raise
            return Response(self, conn, sock, raw, deadline, idle)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        while True:
            with self._lock:
                if self._closed:
                    raise Error("invalid_input", "the client is closed")
                since, conn = self._idle.pop() if self._idle else (0.0, None)
            if conn is None:
                break
            if time.monotonic() - since < _IDLE_TIMEOUT and conn.sock is not None and not _readable(conn.sock):
                return conn, True
            conn.close()
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, context=self._tls), False
        return http.client.HTTPConnection(self._host, self._port), False

    def release(self, conn: http.client.HTTPConnection, raw: http.client.HTTPResponse) -> None:
        """Keep a connection whose response was read, for the next request."""
        if self.flight is not None:
            try:
                self.flight.adopt(None)
            except Error:
                conn.close()
                return
        if not raw.will_close and conn.sock is not None:
            with self._lock:
                if not self._closed and len(self._idle) < _MAX_IDLE:
                    self._idle.append((time.monotonic(), conn))
                    return
        conn.close()

    def close(self) -> None:
        """Close the idle connections. The transport cannot be used afterwards."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, conn in idle:
            conn.close()

    def unreachable(self, err: Exception) -> Error:
        """Return the error for a request that was not answered."""
        if self.flight is not None and self.flight.ended.is_set():
            return Error("cancelled", "the call was cancelled")
        if isinstance(err, TimeoutError):
            return Error("timeout", "the server did not answer in time")
        if isinstance(err, ssl.SSLCertVerificationError):
            return Error("unavailable", f"the certificate of {self.base} cannot be verified: {err.verify_message}", reason="tls_failed",
                         hint="give the file of the authority's certificate as ca_file")
        return Error("unavailable", f"no server answers at {self.base}", reason="service_unavailable",
                     hint="start one with: junctor serve")


def remaining(deadline: float | None) -> float | None:
    """Return the time until the deadline. It raises TimeoutError if it has passed."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _readable(sock: socket.socket) -> bool:
    """Report whether an idle connection was closed or has bytes that nothing asked for."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def failure(status: int, data: bytes) -> Error:
    """Return the error of a refusal. In the connect API the member error is the message itself."""
    try:
        wire = _json.loads(data)
    except (ValueError, RecursionError):
        wire = None
    if isinstance(wire, dict):
        inner = wire.get("error")
        if isinstance(inner, dict) and isinstance(inner.get("code"), str):
            return Error.from_dict(inner, status=status)
        if isinstance(inner, str):
            if isinstance(wire.get("code"), str):
                return Error.from_dict({"message": inner, **wire}, status=status)
            return Error("failed", f"the server answered {status}: {inner[:2000]}", status=status)
    return Error("failed", f"the server answered {status} without a readable error", status=status)
