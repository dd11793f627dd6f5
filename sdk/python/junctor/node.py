"""Nodes: devices that join a gateway and whose functions others call."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import logging
import os
import pathlib
import random
import re
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from urllib.parse import urlsplit

from . import _json
from ._http import Transport
from ._nats import Refused, subject_token
from ._session import Context, Function, Session, object_of
from ._version import __version__
from .errors import Error
from .keys import NodeKey
from .schema import Signature, description_of

__all__ = ["Context", "Node"]

_log = logging.getLogger("junctor.node")

Effect = Literal["read", "write", "execute", "administer"]

_MAX_ASSET = 64 << 20
_MAX_FUNCTIONS = 1024
_ASSET_TIMEOUT = 60.0
_MAX_REFUSALS = 3
_FIRST_WAIT, _LAST_WAIT = 1.0, 60.0

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FUNCTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Node:
    """A node that offers functions to a gateway.

    ``gateway`` is ``https://host``; ``http`` is accepted for this machine only. Without it, JUNCTOR_GATEWAY
    is used. ``token`` is a node token of the operator, by default JUNCTOR_NODE_TOKEN. With a folder
    (``directory``) the node makes a key, enrols once with the token, and needs no token afterwards.
    Without a folder it presents the token each time. ``id`` stays the same over restarts; by default it
    is the one in the folder, else the host's name. ``max_concurrent`` calls run at once, and at most
    ``max_queue`` more wait.

    :meth:`run` joins and serves until the process is interrupted; :meth:`serve` does so in a running
    event loop. The connection is made again after every outage.
    """

    def __init__(self, gateway: str | None = None, *, token: str | None = None, id: str = "",
            directory: str | os.PathLike[str] | None = None,
                 labels: Sequence[str] = (), location: str = "", name: str = "junctor-python", version: str = __version__,
                 max_concurrent: int = 64, max_queue: int = 1000, timeout: float = 300.0, ca_file: str | None = None,
                 joined: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        gateway = gateway if gateway is not None else os.environ.get("JUNCTOR_GATEWAY", "http://127.0.0.1:7777")
        parts = urlsplit(gateway.rstrip("/"))
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError("the gateway must be https://host; tls:// servers are not supported by this SDK")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("the gateway must be https://host, because http would show the token on the network")
        self.gateway = f"{parts.scheme}://{parts.netloc}"
        self._token = (token if token is not None else os.environ.get("JUNCTOR_NODE_TOKEN", "")).strip()
        self._folder = pathlib.Path(directory) if directory is not None else None
        self._key: NodeKey | None = None
        self._enrolled = False
        self.id = id
        self._identify()
        if not _NODE.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not the id of a node: it has 1 to 128 letters, digits, '.', '_' and '-'")
        if len(labels) > 64 or any(not label or len(label.encode()) > 128 for label in labels):
            raise ValueError("a node has at most 64 labels of at most 128 bytes")
        self.labels, self.location = list(labels), location
        self._software = {"name": name, "version": version}
        self._max_concurrent, self._max_queue, self._timeout = max(1, max_concurrent), max_queue, timeout
        self._joined = joined
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._ca_file = ca_file
        self._functions: dict[str, Function] = {}
        self._revision = 1
        self._instance = secrets.token_hex(16)
        self._epoch = 0
        self._session: Session | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = False
        self._stopped: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Node({self.gateway!r}, id={self.id!r})"

    # ---- Identity ----------------------------------------------------------

    def _identify(self) -> None:
        if self._folder is None:
            if not self._token:
                raise ValueError("a node without a folder needs a token each time; give token or directory")
            self.id = self.id or _default_id()
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stored: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            stored = _json.loads((self._folder / "node.json").read_bytes()[:1 << 16])
        self.id = self.id or stored.get("id", "") or _default_id()
        self._key = NodeKey(stored.get("seed", ""))
        self._enrolled = bool(stored.get("enrolled")) and stored.get("id") == self.id and stored.get("gateway") == self.gateway
        if not self._enrolled and not self._token:
            raise ValueError(f"this node has not enrolled with {self.gateway} yet, and has no token; make one on the gateway with: "
                             "junctor tokens create --role node")

    def _save(self) -> None:
        assert self._folder is not None and self._key is not None
        content = {"id": self.id, "gateway": self.gateway, "enrolled": True, "seed": self._key.seed}
        temporary = self._folder / f"node.json.{secrets.token_hex(4)}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_json.dumps(content))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / "node.json")
        finally:
            temporary.unlink(missing_ok=True)

    def _enrol(self) -> None:
        assert self._key is not None
        web = Transport(self.gateway, self._token, "junctor-python/" + __version__, self._ca_file)
        try:
            body = _json.dumps({"node_id": self.id, "public_key": self._key.public})
            response = web.send("POST", "/nodes/enroll", body, deadline=time.monotonic() + 30)
            if response.status != 200:
                raise response.failure()
            response.read(1 << 16)
        finally:
            web.close()
        self._save()
        self._enrolled = True

    # ---- Functions ---------------------------------------------------------

    def function(self, function: Callable[..., Any] | None = None, *, name: str = "", description: str = "", effect: Effect = "execute",
                 version: str = "1.0.0", tags: Sequence[str] = (), timeout: float | None = None, priority: int = 5,
                 max_concurrent: int = 0, input_schema: Mapping[str, Any] | None = None) -> Any:
        """Register a function, also while the node runs. It is used as a decorator.

        Without a name it is the function's, without a description the first paragraph of its docstring.
        The schema follows from the type hints. Async functions run in the event loop, sync functions in
        threads. A generator is a stream of chunks. A parameter of type :class:`Context` receives the
        call. The gateway's policy decides by ``effect`` who may call it: read, write, execute or
        administer.
        """
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.add(function, name=name, description=description, effect=effect, version=version, tags=tags, timeout=timeout,
                     priority=priority, max_concurrent=max_concurrent, input_schema=input_schema)
            return function
        return register if function is None else register(function)

    def add(self, function: Callable[..., Any], *, name: str = "", description: str = "", effect: Effect = "execute",
            version: str = "1.0.0",
            tags: Sequence[str] = (), timeout: float | None = None, priority: int = 5, max_concurrent: int = 0,
            input_schema: Mapping[str, Any] | None = None, replace: bool = False) -> None:
        """Register a function; see :meth:`function`. With ``replace`` it takes the place of another."""
        called = name or getattr(function, "__name__", "")
        if not _FUNCTION.fullmatch(called):
            raise ValueError(f"{called[:200]!r} is not the name of a function: it has 1 to 200 letters, digits and _ . : / -")
        if called.startswith("device."):
            raise ValueError(f"the name {called} belongs to the protocol")
        if effect not in ("read", "write", "execute", "administer"):
            raise ValueError(f"{effect!r} is not an effect; use read, write, execute or administer")
        if called in self._functions and not replace:
            raise ValueError(f"the node has a function {called} already")
        if len(self._functions) >= _MAX_FUNCTIONS and called not in self._functions:
            raise ValueError(f"a node has at most {_MAX_FUNCTIONS} functions")
        signature = Signature(function, (Context,))
        stream = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        entry: dict[str, Any] = {
            "name": called, "description": description or description_of(function), "version": version, "tags": list(tags),
            "priority": priority, "execution_mode": "normal", "timeout_seconds": timeout, "is_async": is_async, "is_generator": stream,
            "stream": stream, "effect": effect, "input_schema": dict(input_schema) if input_schema is not None else signature.schema,
            "max_concurrent": max_concurrent,
        }
        if not stream and (output := signature.output_schema()):
            entry["output_schema"] = output
        self._functions[called] = Function(called, function, signature, entry, stream, is_async, max_concurrent, timeout)
        self._changed()

    def remove(self, name: str) -> bool:
        """Remove a function, and return whether there was one. Calls that run are not affected."""
        found = self._functions.pop(name, None) is not None
        if found:
            self._changed()
        return found

    @property
    def functions(self) -> list[str]:
        """The names of the functions."""
        return sorted(self._functions)

    def _changed(self) -> None:
        self._revision += 1
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._schedule_update)

    def _schedule_update(self) -> None:
        if self._session is not None:
            self._session.schedule_update()

    def _entries(self) -> list[dict[str, Any]]:
        return [f.entry for f in list(self._functions.values())]

    # ---- Running -----------------------------------------------------------

    def run(self) -> None:
        """Join and serve calls until the process is interrupted, :meth:`stop` is called or the gateway drains the node.

        An interrupt lets the calls that run finish, at most 30 s.
        """
        async def main() -> None:
            loop = asyncio.get_running_loop()
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGINT, signal.SIGTERM):
                    with contextlib.suppress(NotImplementedError):
                        loop.add_signal_handler(number, self.stop)
            await self.serve()
        asyncio.run(main())

    def stop(self) -> None:
        """End :meth:`run` when the calls that run have finished. It may be called from any thread."""
        self._stopping = True
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        if self._session is not None:
            self._session.drain()
        elif self._stopped is not None:
            self._stopped.set()

    async def serve(self) -> None:
        """Join and serve calls. It raises Error if the gateway refuses the node for good."""
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._threads = ThreadPoolExecutor(self._max_concurrent, thread_name_prefix="junctor-node")
        attempts = refusals = 0
        enrol_again = self._key is not None and self._enrolled and bool(self._token)
        try:
            while not self._stopping:
                try:
                    if self._key is not None and not self._enrolled:
                        await asyncio.to_thread(self._enrol)
                    await self._serve_once()
                    attempts = refusals = 0
                except Refused as err:
                    refusals += 1
                    if enrol_again:  # the gateway may have lost the node
                        enrol_again = self._enrolled = False
                        continue
                    if refusals >= _MAX_REFUSALS and not self._epoch:
                        raise Error("unauthenticated", str(err)) from None
                    _log.warning("%s", err)
                except Error as err:
                    if err.status in (401, 403, 409) or err.details.get("final"):
                        raise
                    _log.warning("%s", err)
                if self._stopping:
                    return
                pause = min(_LAST_WAIT, _FIRST_WAIT * 1.5 ** min(attempts, 20)) * random.uniform(0.5, 1.5)
                attempts += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._loop = None

    async def _serve_once(self) -> None:
        session = Session(self)
        try:
            await session.open()
            self._session = session
            if self._stopping:
                session.drain()
            await session.wait()
        finally:
            self._session = None
            await session.close()

    # ---- The gateway -------------------------------------------------------

    async def call(self, action: str, input: Mapping[str, Any] | None = None, *, select: str = "", timeout: float = 60.0,
                   idempotency_key: str = "") -> Any:
        """Use a capability of the gateway, as the principal that the node is, and return its result."""
        if self._session is None:
            raise Error("unavailable", "the node is not connected", reason="connection_failed")
        body: dict[str, Any] = {"call_id": secrets.token_hex(12), "action": action, "input": dict(input or {}),
                                "deadline_ms": int(timeout * 1000)}
        if select:
            body["select"] = select
        if idempotency_key:
            body["idempotency_key"] = idempotency_key
        answer = await self._session.bus.request(f"v1.node.{subject_token(self.id)}.call", body, timeout + 5)
        if not object_of(answer).get("ok"):
            raise Error.from_dict(object_of(object_of(answer).get("error")))
        return answer.get("result")

    def _asset(self, method: str, digest: str, body: bytes | None, media_type: str, limit: int) -> bytes:
        path = "/nodes/assets/" + digest
        web = Transport(self.gateway, "" if self._key is not None else self._token, "junctor-python/" + __version__, self._ca_file)
        headers = {"Junctor-Node": self.id}
        if self._key is not None:
            headers = {"Authorization": self._key.authorization(self.id, method, path, time.time() + self._session_skew())}
        try:
            response = web.send(method, path, body, content_type=media_type, headers=headers, deadline=time.monotonic() + _ASSET_TIMEOUT)
            if response.status not in (200, 201, 204):
                raise response.failure()
            return response.read(limit)
        finally:
            web.close()

    def _session_skew(self) -> float:
        return self._session.skew if self._session is not None else 0.0

    def put_asset(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Send a large value to the gateway and return its reference. It blocks."""
        if len(data) > _MAX_ASSET:
            raise Error("too_large", f"the value has {len(data)} bytes, the limit is {_MAX_ASSET}", reason="payload_too_large")
        digest = hashlib.sha256(data).hexdigest()
        self._asset("PUT", digest, data, media_type, 1 << 16)
        return {"$asset": {"digest": "sha256:" + digest, "size": len(data), "media_type": media_type}}

    def get_asset(self, asset: Mapping[str, Any]) -> bytes:
        """Read a large value from the gateway by its reference. It blocks."""
        digest, size = asset.get("digest"), asset.get("size")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(size, int) or not 0 <= size <= _MAX_ASSET:
            raise Error("invalid_input", "the reference of the asset is malformed", reason="invalid_params")
        data = self._asset("GET", digest[7:], None, "", size)
        if len(data) != size or "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            raise Error("invalid_input", "the asset is not the one of its digest and size", reason="bad_encoding")
        return data


def _default_id() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".local")[0]).strip("-._")
    return name[:128] or "node"
