"""The session of a node with its gateway: joining, heartbeats, calls and their answers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import functools
import inspect
import json
import logging
import os
import platform
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from . import _json
from ._nats import Bus, subject_token
from .errors import Error
from .schema import Signature

if TYPE_CHECKING:
    from .node import Node

_log = logging.getLogger("junctor.node")
_T = TypeVar("_T")

_MAX_CHUNK = 128 << 10
_MAX_STREAMS = 32
_MAX_OUT = 4 << 20
_MAX_TEXT = 4 << 10
_ENVELOPE = 4096  # of a frame around its value
_ACK_DELAY = 0.2
_DRAIN_TIMEOUT = 30.0
_UPDATE_DELAY = 0.05

_CALL = re.compile(r"[A-Za-z0-9_-]{1,128}")
_FINAL = ("denied", "unsupported_version", "invalid_params", "bad_encoding", "payload_too_large")
_REASONS = frozenset((
    "function_not_found", "node_overloaded", "timeout", "cancelled", "bad_encoding", "payload_too_large", "execution_failed",
    "invalid_params", "denied", "consent_required", "consent_denied", "connection_failed", "no_available_nodes"))
_NEAREST = {
    "unauthenticated": "denied", "denied": "denied", "approval_required": "consent_required", "invalid_input": "invalid_params",
    "not_found": "invalid_params", "too_large": "payload_too_large", "unknown_capability": "function_not_found",
    "overloaded": "node_overloaded", "unavailable": "no_available_nodes", "timeout": "timeout", "cancelled": "cancelled",
}
# The functions with which a gateway puts skills on a node.
_SKILLS = frozenset((
    "device.install_remote_skill", "device.uninstall_remote_skill", "device.list_installed_skills", "device.list_node_functions",
    "device.get_capability_host_status"))
_RETRY = ("node_overloaded", "no_available_nodes", "connection_failed")


def _default(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode()}
    return _json._default(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default).encode


def _written(value: Any) -> bytes:
    try:
        return _encode(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as err:
        raise Error("failed", f"the result of the function cannot be written as JSON: {err}", reason="bad_encoding") from None


class Context:
    """One call of a function. A function receives it by a parameter of this type.

    ``caller`` is the principal that calls, for display. ``idempotency_key`` is that of the call, or
    an empty text.
    """

    def __init__(self, call: _Call) -> None:
        self._call = call
        self.call_id: str = call.id
        self.function: str = call.function
        self.caller: str = call.caller
        self.idempotency_key: str = call.idempotency_key

    @property
    def cancelled(self) -> bool:
        """Whether the call has ended, so that a sync function should return."""
        return self._call.ended

    @property
    def remaining(self) -> float | None:
        """The time until the deadline in seconds, or None."""
        return None if self._call.deadline is None else max(0.0, self._call.deadline - time.monotonic())

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress between 0 and 1 to the caller."""
        frame = {"fraction": min(max(float(fraction), 0.0), 1.0), "message": message[:_MAX_TEXT]}
        self._call.session.loop.call_soon_threadsafe(self._call.frame, "progress", frame)


@dataclass
class Function:
    name: str
    run: Callable[..., Any]
    signature: Signature
    entry: dict[str, Any]
    stream: bool
    is_async: bool
    max_concurrent: int
    timeout: float | None
    running: int = 0


class Session:
    """One connection and what runs on it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.token = subject_token(node.id)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.bus = Bus(f"_INBOX.{self.token}", self._received)
        self.epoch = 0
        self.max_inline = 512 << 10
        self.window = 256 << 10
        self.skew = 0.0
        self.calls: dict[str, _Call] = {}
        self.queue: deque[_Call] = deque()
        self.running = 0
        self.outstanding = 0
        self.room: asyncio.Event | None = None  # set when a reader has taken something
        self.draining = False
        self.superseded = False
        self._seq = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beats: asyncio.Task[None] | None = None
        self._update: asyncio.TimerHandle | None = None
        self._done = asyncio.Event()
        self._failure: Error | None = None

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def open(self) -> None:
        node = self.node
        url = node.gateway.replace("http", "ws", 1) + "/nodes/connect"
        headers = {} if node._key is not None else {"Authorization": "Bearer " + node._token}

        def credential(nonce: str) -> dict[str, str]:
            if node._key is not None:
                return {"nkey": node._key.public, "sig": node._key.sign_nonce(nonce)}
            return {"auth_token": node._token}
        await self.bus.open(url, node.id, headers=headers, tls=node._tls, credential=credential)
        # One subscription, so that a cancel never overtakes its call.
        self.bus.subscribe(f"v1.host.{self.token}.>")
        await self.join()

    async def join(self) -> None:
        """Join, or join again on the same connection."""
        self._end_calls("the session is renewed")
        self.epoch = 0
        node = self.node
        revision = node._revision
        reply = await self.bus.request(f"v1.gw.{self.token}.join", {
            "proto": 1, "node_id": node.id, "instance": node._instance, "software": node._software, "os": platform.system().lower(),
            "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()), "labels": node.labels,
            "location": node.location, "revision": revision, "epoch": node._epoch, "functions": node._entries(),
            "max_concurrent": node._max_concurrent, "accepting": True,
        })
        if not object_of(reply).get("ok"):
            raise _refusal(object_of(object_of(reply).get("error")))
        self.epoch = node._epoch = int(reply["epoch"])
        self.max_inline = min(max(int(reply.get("max_inline", self.max_inline)), 1 << 14), 512 << 10)
        self.window = int(reply.get("window", self.window))
        self.skew = _skew(reply.get("server_time"))
        if self._beats is not None:
            self._beats.cancel()
        self._beats = self.spawn(self._heartbeat(min(max(int(reply.get("heartbeat_ms", 5000)), 100), 60000) / 1000))
        if node._revision != revision:
            self.schedule_update()
        if node._joined is not None:
            node._joined({"node_id": node.id, "epoch": self.epoch, "labels": node.labels,
                          "rejected_labels": reply.get("rejected_labels") or []})

    async def wait(self) -> None:
        """Wait until the session ends."""
        done = self.loop.create_task(self._done.wait())
        ends: set[asyncio.Future[Any]] = {done, self.bus.closed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        done.cancel()
        # A message that came just before the end still counts.
        if self.superseded:
            raise Error("conflict", f"another process has joined as {self.node.id}", reason="superseded", details={"final": True})
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._end_calls("the connection ended")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._update is not None:
            self._update.cancel()
        await self.bus.close()

    def _end_calls(self, why: str) -> None:
        for call in list(self.calls.values()):
            call.end(Error("cancelled", why), silent=True)
        self.queue.clear()

    async def _heartbeat(self, interval: float) -> None:
        while True:
            self.beat()
            await asyncio.sleep(interval)

    def beat(self) -> None:
        if not self.epoch:
            return
        self._seq += 1
        cpu, memory = _load()
        self.bus.publish(f"v1.gw.{self.token}.beat", _json.dumps({
            "epoch": self.epoch, "seq": self._seq, "revision": self.node._revision, "cpu": cpu, "mem": memory, "gpu": 0,
            "active": self.running, "queued": len(self.queue), "accepting": not self.draining and len(self.queue) < self.node._max_queue,
        }))

    def schedule_update(self) -> None:
        if self._update is None and self.epoch:
            self._update = self.loop.call_later(_UPDATE_DELAY, lambda: self.spawn(self._send_update()))

    async def _send_update(self) -> None:
        self._update = None
        try:
            await self.bus.request(f"v1.gw.{self.token}.update", {
                "epoch": self.epoch, "revision": self.node._revision, "functions": self.node._entries(), "labels": self.node.labels,
            })
        except Error as err:
            _log.warning("the gateway did not take the new functions: %s", err)

    def drain(self) -> None:
        """Take nothing new, finish what runs, and leave."""
        if not self.draining:
            self.draining = True
            self.spawn(self._drain())

    async def _drain(self) -> None:
        subject = f"v1.gw.{self.token}.leave"
        self.node._stopping = True
        with contextlib.suppress(Error):
            await self.bus.request(subject, {"epoch": self.epoch, "reason": "leave", "drain": True}, 5)
        end = time.monotonic() + _DRAIN_TIMEOUT
        while self.calls and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.25)
        with contextlib.suppress(Error):
            await self.bus.request(subject, {"epoch": self.epoch, "reason": "leave", "drain": False}, 5)
        self._done.set()

    # ---- Messages ----------------------------------------------------------

    def _received(self, subject: str, reply: str, payload: bytes) -> None:
        try:
            message = _json.loads(payload)
        except (ValueError, RecursionError):
            _log.warning("the gateway sent a message that is not JSON")
            return
        if not isinstance(message, dict) or message.get("epoch") != self.epoch or not self.epoch:
            return  # it belongs to another session
        if subject.endswith(".call"):
            self._called(message, reply)
        elif subject.endswith(".ctl"):
            self._control(message)

    def _control(self, message: dict[str, Any]) -> None:
        call = self.calls.get(message.get("call_id", "")) if isinstance(message.get("call_id"), str) else None
        match message.get("type"):
            case "cancel" if call is not None:
                call.end(Error("cancelled", "the call was cancelled"), silent=True)
            case "credit" if call is not None and isinstance(message.get("bytes"), int):
                call.credit(message["bytes"])
            case "rejoin":
                self.spawn(self._rejoin())
            case "update":
                self.schedule_update()
            case "beat":
                self.beat()
            case "drain":
                self.drain()
            case "superseded":
                self.superseded = True
                self._done.set()

    async def _rejoin(self) -> None:
        try:
            await self.join()
        except Error as err:
            self._failure = err
            self._done.set()

    def _called(self, message: dict[str, Any], reply: str) -> None:
        id, name = message.get("call_id"), message.get("function")
        if not isinstance(id, str) or not _CALL.fullmatch(id) or id in self.calls or not isinstance(name, str) \
                or not reply.startswith(f"v1.gw.{self.token}.reply."):
            return
        call = _Call(self, message, reply, id, name)
        found = self.node._functions.get(name)
        if found is None and name in _SKILLS:
            call.fail(Error("denied", f"node {self.node.id!r} takes no skills: the Python SDK cannot confine the code of a skill. "
                            "Install it on a node of the Go package host/device.", reason="denied"))
            return
        if found is None:
            call.fail(Error("unknown_capability", f"node {self.node.id!r} has no function {name[:200]}",
                reason="function_not_found"))
            return
        streams = sum(c.streams for c in self.calls.values()) if call.wants_stream else 0
        if self.draining or len(self.queue) >= self.node._max_queue or streams >= _MAX_STREAMS or (
                found.max_concurrent and found.running >= found.max_concurrent):
            call.fail(Error("overloaded", f"Execution queue is full on node {self.node.id!r}. Please retry later.",
                reason="node_overloaded",
                            retry_after=1.0))
            return
        call.found, call.streams = found, call.wants_stream and found.stream
        found.running += 1
        self.calls[id] = call
        call.accept()
        if self.running < self.node._max_concurrent:
            self.begin(call)
        else:
            self.queue.append(call)

    def begin(self, call: _Call) -> None:
        self.running += 1
        call.task = self.spawn(call.run())

    def released(self, call: _Call, ran: bool) -> None:
        """Forget a call, and begin the next one if it ran."""
        if self.calls.pop(call.id, None) is not None and call.found is not None:
            call.found.running -= 1
        if not ran:
            with contextlib.suppress(ValueError):
                self.queue.remove(call)
            return
        self.running -= 1
        while self.queue and self.running < self.node._max_concurrent:
            following = self.queue.popleft()
            if not following.ended:
                self.begin(following)


class _Call:
    """One call and its answer."""

    def __init__(self, session: Session, message: dict[str, Any], reply: str, id: str, function: str) -> None:
        self.session, self.message, self.reply, self.id, self.function = session, message, reply, id, function
        caller = message.get("caller")
        self.caller = caller["id"] if isinstance(caller, dict) and isinstance(caller.get("id"), str) else ""
        key = message.get("idempotency_key")
        self.idempotency_key = key if isinstance(key, str) else ""
        self.wants_stream = message.get("stream") is True
        self.streams = False
        self.epoch = session.epoch
        self.found: Function | None = None
        self.task: asyncio.Task[None] | None = None
        self.seq = 0
        self.ended: bool = False
        self.deadline: float | None = None
        self.outstanding = 0
        window = message.get("window")
        self.window = window if isinstance(window, int) and window > 0 else session.window
        self.began = time.monotonic()
        self._timers: list[asyncio.TimerHandle] = []

    def accept(self) -> None:
        """Start the clocks of the call."""
        loop = self.session.loop
        self._timers.append(loop.call_later(_ACK_DELAY, self._ack))
        assert self.found is not None
        wanted = self.message.get("deadline_ms")
        seconds = self.found.timeout or self.session.node._timeout
        if isinstance(wanted, (int, float)) and wanted > 0:
            seconds = min(seconds, wanted / 1000)
        self.deadline = time.monotonic() + seconds
        self._timers.append(loop.call_later(seconds, self._late))

    def _late(self) -> None:
        self.end(Error("timeout", f"the function {self.function} took longer than it may", reason="timeout"))

    def _ack(self) -> None:
        if not self.seq:
            self.frame("ack", {})

    def frame(self, type: str, more: Mapping[str, Any]) -> None:
        """Send a frame, unless the call has ended."""
        self._write(type, b"".join(b"," + _json.dumps(k) + b":" + _json.dumps(v) for k, v in more.items()))

    def _write(self, type: str, more: bytes) -> None:
        if self.ended:
            return
        if type in ("result", "done", "error"):
            self._finish()
        head = f'{{"call_id":"{self.id}","epoch":{self.epoch},"seq":{self.seq},"type":"{type}"'.encode()
        self.seq += 1
        self.session.bus.publish(self.reply, head + more + b"}")

    def _finish(self) -> None:
        self.ended = True
        for timer in self._timers:
            timer.cancel()
        self.credit(self.outstanding)

    def fail(self, err: Error) -> None:
        """End the call with an error."""
        reason = err.reason if err.reason in _REASONS else _NEAREST.get(err.code, "execution_failed")
        wire: dict[str, Any] = {"code": reason, "message": _clip(self._hide(err.message)), "node_id": self.session.node.id,
                                "function": self.function[:200], "retryable": reason in _RETRY}
        if err.retry_after:
            wire["retry_after_ms"] = int(err.retry_after * 1000)
        details = dict(err.details)
        if err.reason and err.reason != reason:
            details["reason"] = err.reason
        if details:
            try:
                if len(text := self._hide(_json.dumps(details).decode())) <= _MAX_TEXT:
                    wire["details"] = json.loads(text)
            except (TypeError, ValueError):
                pass  # what has no JSON form is left out
        self.frame("error", {"error": wire})

    def _hide(self, text: str) -> str:
        token = self.session.node._token
        return text.replace(token, "[redacted]") if token else text

    def end(self, err: Error, silent: bool = False) -> None:
        """End the call before its function has returned. If silent, nothing is sent."""
        if self.ended:
            return
        if silent:
            self._finish()
        else:
            self.fail(err)
        if self.task is None:
            self.session.released(self, ran=False)
        else:
            self.task.cancel()

    def credit(self, size: int) -> None:
        """Give back room for the chunks of the stream."""
        size = min(max(size, 0), self.outstanding)
        self.outstanding -= size
        self.session.outstanding -= size
        if self.session.room is not None:
            self.session.room.set()

    async def run(self) -> None:
        assert self.found is not None
        found = self.found
        try:
            args, kwargs = found.signature.bind(*await self._arguments())
            for name in found.signature.injected:
                kwargs[name] = Context(self)
            if found.stream:
                await self._stream(found, args, kwargs)
            else:
                if found.is_async:
                    value = await found.run(*args, **kwargs)
                else:
                    value = await self._in_thread(functools.partial(found.run, *args, **kwargs))
                    if inspect.isawaitable(value):
                        value = await value
                await self._result(value)
        except asyncio.CancelledError:
            self.end(Error("cancelled", "the call was cancelled"))
        except Error as err:
            self.fail(err)
        except Exception as err:
            _log.info("the function %s failed", self.function, exc_info=err)
            self.fail(Error("failed", f"{type(err).__name__}: {err}", reason="execution_failed"))
        finally:
            if not self.ended:
                self._finish()
            self.session.released(self, ran=True)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        assert self.session.node._threads is not None
        return await self.session.loop.run_in_executor(self.session.node._threads, contextvars.copy_context().run, work)

    async def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        message = self.message
        if isinstance(message.get("arguments"), dict):
            asset = message["arguments"].get("$asset")
            if not isinstance(asset, dict):
                raise Error("invalid_input", "the arguments are malformed", reason="invalid_params")
            try:
                message = _json.loads(await asyncio.to_thread(self.session.node.get_asset, asset))
            except (ValueError, RecursionError):
                raise Error("invalid_input", "the arguments are not JSON", reason="bad_encoding") from None
        args, kwargs = message.get("args") or [], message.get("kwargs") or {}
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise Error("invalid_input", "the arguments are malformed", reason="invalid_params")
        return args, kwargs

    async def _value(self, value: Any, limit: int) -> bytes:
        data = _written(value)
        if len(data) <= limit:
            return data
        kind, content = ("application/octet-stream", bytes(value)) if isinstance(value, (bytes, bytearray)) else ("application/json", data)
        return _json.dumps(await asyncio.to_thread(self.session.node.put_asset, content, kind))

    def _exec_ms(self) -> bytes:
        return b',"exec_ms":%d' % ((time.monotonic() - self.began) * 1000)

    async def _result(self, value: Any) -> None:
        self._write("result", b',"value":' + await self._value(value, self.session.max_inline - _ENVELOPE) + self._exec_ms())

    async def _stream(self, found: Function, args: list[Any], kwargs: dict[str, Any]) -> None:
        chunks = size = 0
        collected: list[Any] = []
        items = found.run(*args, **kwargs)
        try:
            async for value in items if found.is_async else self._threaded(items):
                if not self.wants_stream:
                    collected.append(value)
                    continue
                data = await self._value(value, _MAX_CHUNK)
                await self._room(len(data))
                self.outstanding += len(data)
                self.session.outstanding += len(data)
                chunks, size = chunks + 1, size + len(data)
                self._write("chunk", b',"value":' + data)
        finally:
            if found.is_async:
                await items.aclose()
        if self.wants_stream:
            self._write("done", b',"chunks":%d,"bytes":%d' % (chunks, size) + self._exec_ms())
        else:
            await self._result(collected)

    async def _threaded(self, items: Iterator[Any]) -> AsyncIterator[Any]:
        end = object()
        try:
            while (value := await self._in_thread(lambda: next(items, end))) is not end:
                yield value
        finally:
            # A generator that is running in its thread cannot be closed; it ends with its next chunk.
            with contextlib.suppress(ValueError):
                items.close()  # type: ignore[attr-defined]

    async def _room(self, size: int) -> None:
        """Wait until the reader has taken enough of the stream."""
        session = self.session
        while self.outstanding >= self.window or session.outstanding and session.outstanding + size > _MAX_OUT:
            if session.room is None or session.room.is_set():
                session.room = asyncio.Event()
            await session.room.wait()


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object, or an empty one."""
    return value if isinstance(value, dict) else {}


def _refusal(wire: dict[str, Any]) -> Error:
    err = Error.from_dict({**wire, "code": "denied" if wire.get("code") == "denied" else "failed"})
    err.reason = wire.get("code", "") if isinstance(wire.get("code"), str) else ""
    if err.reason in _FINAL or err.details.get("reason") == "superseded":
        err.details["final"] = True
    return err


def _clip(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= _MAX_TEXT else data[:_MAX_TEXT - 3].decode("utf-8", "ignore") + "…"


def _skew(server_time: Any) -> float:
    try:
        return datetime.fromisoformat(server_time).timestamp() - time.time()
    except (TypeError, ValueError):
        return 0.0


def _load() -> tuple[float, float]:
    """Return the use of processors and memory, 0 to 100."""
    cpu = memory = 0.0
    with contextlib.suppress(OSError, AttributeError):
        cpu = min(100.0, 100 * os.getloadavg()[0] / (os.cpu_count() or 1))
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as file:
            found = {line.split(":")[0]: int(line.split()[1]) for line in file}
        memory = min(max(100 * (1 - found["MemAvailable"] / found["MemTotal"]), 0.0), 100.0)
    return cpu, memory
