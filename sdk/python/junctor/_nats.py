"""The part of the NATS protocol that nodes use, inside binary WebSocket messages.

It is one module, so that another client of NATS can take its place. It needs the package
``websockets``.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import secrets
import ssl
from collections.abc import Callable
from typing import Any

from . import _json
from ._version import __version__
from .errors import Error

MAX_PAYLOAD = 576 << 10
_MAX_LINE = 64 << 10
_MAX_FRAME = 8 << 20
_OPEN_TIMEOUT = 15.0
_PING_INTERVAL = 5.0
_MAX_LOST_PINGS = 2
REQUEST_TIMEOUT = 15.0

_log = logging.getLogger("junctor.node")


class Refused(Exception):
    """The bus refused the credential."""


def _connect(url: str, headers: dict[str, str], tls: ssl.SSLContext | None) -> Any:
    options: dict[str, Any] = {"max_size": _MAX_FRAME, "compression": None, "ping_interval": None, "open_timeout": _OPEN_TIMEOUT,
                               "close_timeout": 2}
    if tls is not None:
        options["ssl"] = tls
    try:
        return importlib.import_module("websockets.asyncio.client").connect(url, additional_headers=headers, **options)
    except ImportError:
        pass  # before version 13
    try:
        legacy = importlib.import_module("websockets.legacy.client")
    except ImportError:
        raise ImportError("a node needs the packages websockets and cryptography; install junctor[node]") from None
    return legacy.connect(url, extra_headers=headers, **options)


class Bus:
    """One connection. It ends for good when it breaks.

    ``received`` is called for each message that is not the answer to a request, with the
    subject, the reply subject and the payload. It must not block.
    """

    def __init__(self, inbox: str, received: Callable[[str, str, bytes], None]) -> None:
        self._inbox = f"{inbox}.{secrets.token_hex(11)}"
        self._received = received
        self._socket: Any = None
        self._buffer = b""
        self._out: list[bytes] = []
        self._wake = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._asked = 0
        self._lost = 0
        self._greeted = False
        loop = asyncio.get_running_loop()
        self._info: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        #: The end of the connection. Its result is the cause, or None.
        self.closed: asyncio.Future[BaseException | None] = loop.create_future()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, url: str, name: str, *, headers: dict[str, str], tls: ssl.SSLContext | None,
                   credential: Callable[[str], dict[str, str]]) -> None:
        """Connect. ``credential`` returns members of CONNECT for the nonce of the server.

        It raises Refused if the credential is refused, and Error if the server cannot be reached.
        """
        try:
            self._socket = await _connect(url, headers, tls)
        except ImportError:
            raise
        except Exception as err:
            status = getattr(err, "status_code", None) or getattr(getattr(err, "response", None), "status_code", None)
            if status in (401, 403):
                raise Refused(f"the gateway refused the token with status {status}") from None
            raise Error("unavailable", f"the gateway cannot be reached: {type(err).__name__}", reason="connection_failed") from None
        for task in (self._read(), self._write()):
            self._tasks.append(asyncio.create_task(task))
        try:
            async with asyncio.timeout(_OPEN_TIMEOUT):
                nonce = (await self._info).get("nonce", "")
                options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python",
                           "version": __version__, "protocol": 1, "name": name, **credential(nonce if isinstance(nonce, str) else "")}
                self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
                await self._ready
        except TimeoutError:
            raise Error("timeout", "the bus did not answer in time", reason="connection_failed") from None
        self._send(f"SUB {self._inbox}.* 1\r\n".encode())
        self._tasks.append(asyncio.create_task(self._ping()))

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        self._wake.set()

    def subscribe(self, subject: str) -> None:
        """Subscribe to a subject."""
        self._send(f"SUB {subject} 2\r\n".encode())

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send a message. It is written by the connection's own task."""
        if len(payload) > MAX_PAYLOAD:
            raise Error("too_large", f"the message has {len(payload)} bytes, the limit is {MAX_PAYLOAD}", reason="payload_too_large")
        head = f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n".encode()
        self._out += (head, payload, b"\r\n")
        self._wake.set()

    async def request(self, subject: str, value: Any, timeout: float = REQUEST_TIMEOUT) -> Any:
        """Send a request and return the JSON value of the answer."""
        self._asked += 1
        reply = f"{self._inbox}.{self._asked}"
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = future
        try:
            self.publish(subject, _json.dumps(value), reply)
            async with asyncio.timeout(timeout):
                return _json.loads(await future)
        except TimeoutError:
            raise Error("timeout", f"the gateway did not answer within {timeout:g} s", reason="timeout") from None
        except ValueError:
            raise Error("failed", "the answer of the gateway is not JSON", reason="bad_encoding") from None
        finally:
            self._waiting.pop(reply, None)

    async def flush(self) -> None:
        """Wait until everything that was published is written."""
        while self._out and not self.closed.done():
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Close the connection."""
        self._end(None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            try:
                await self._socket.close()
            except Exception:
                pass  # it is gone already

    def _end(self, cause: BaseException | None) -> None:
        if self.closed.done():
            return
        self.closed.set_result(cause)
        broken = cause if isinstance(cause, Refused) else Error("unavailable", "the connection to the gateway broke",
            reason="connection_failed")
        waiting: list[asyncio.Future[Any]] = [self._info, self._ready, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(broken)
                future.exception()  # it may have no reader

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # NATS is a stream of bytes, so that one frame holds many messages.
                out, self._out = self._out, []
                data = b"".join(out)
                for at in range(0, len(data), 1 << 20):
                    await self._socket.send(data[at:at + (1 << 20)])
        except asyncio.CancelledError:
            raise
        except Exception as err:
            self._end(err)

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                if isinstance(frame, str):
                    raise ValueError("the gateway sent a text frame")
                self._parse(frame)
            self._end(None)
        except asyncio.CancelledError:
            raise
        except Exception as err:
            self._end(err)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_INTERVAL)
            self._lost += 1
            if self._lost > _MAX_LOST_PINGS:
                self._end(TimeoutError("the gateway does not answer pings"))
                return
            self._send(b"PING\r\n")

    def _parse(self, frame: bytes) -> None:
        data = self._buffer + frame if self._buffer else frame
        at = 0
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > _MAX_LINE:
                    raise ValueError("a line of the gateway is too long")
                break
            words = data[at:end].split()
            verb = words[0].upper() if words else b""
            if verb in (b"MSG", b"HMSG"):
                headed = verb == b"HMSG"
                if not (4 <= len(words) - headed <= 5):
                    raise ValueError("malformed message of the bus")
                size, head = int(words[-1]), int(words[-2]) if headed else 0
                if not 0 <= head <= size <= MAX_PAYLOAD + _MAX_LINE:
                    raise ValueError("a message of the gateway is too large")
                start = end + 2
                if len(data) < start + size + 2:
                    break  # the rest is on its way
                plain = words[1:-2] if headed else words[1:-1]
                at = start + size + 2
                self._message(plain[0].decode(), plain[2].decode() if len(plain) > 2 else "", data[start:start + head],
                              data[start + head:start + size])
                continue
            self._line(verb, data[at:end])
            at = end + 2
        self._buffer = data[at:]

    def _line(self, verb: bytes, line: bytes) -> None:
        if verb == b"INFO":
            if not self._greeted:  # a later one is news of the server
                self._greeted = True
                info = json.loads(line[5:])
                if not isinstance(info, dict):
                    raise ValueError("malformed INFO")
                self._info.set_result(info)
        elif verb == b"PING":
            self._send(b"PONG\r\n")
        elif verb == b"PONG":
            self._lost = 0
            if not self._ready.done():
                self._ready.set_result(None)
        elif verb == b"-ERR":
            text = line[4:].decode("utf-8", "replace").strip()[:200]
            if "authorization" in text.lower() or "authentication" in text.lower():
                self._end(Refused("the gateway refused the credential"))
            else:
                _log.warning("the bus reports an error: %s", text)

    def _message(self, subject: str, reply: str, head: bytes, payload: bytes) -> None:
        if subject.startswith(self._inbox):
            future = self._waiting.get(subject)
            if future is None or future.done():
                return
            if head.startswith(b"NATS/1.0 503"):
                future.set_exception(Error("unavailable", "the gateway has no receiver for this request", reason="connection_failed"))
            else:
                future.set_result(payload)
            return
        self._received(subject, reply, payload)


def subject_token(name: str) -> str:
    """Return a name as one token of a subject."""
    return "".join(chr(b) if chr(b).isascii() and (chr(b).isalnum() or b in b"_-") else f"={b:02X}" for b in name.encode())
