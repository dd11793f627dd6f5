"""The client of a junctor server, for programs and for agents."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

from . import _json
from ._http import Flight, Transport
from ._version import __version__
from .errors import Error

__all__ = [
    "Approval", "AsyncClient", "CallOptions", "Capability", "Client", "Event", "Invoked", "NodeInfo", "Reply", "Run", "Task",
]

_T = TypeVar("_T")
_END = object()
_GRACE = 10.0  # for the answer to a call whose own timeout has passed
_FIRST_POLL, _LAST_POLL = 0.5, 5.0
_MAX_PAGES = 1000


@dataclass(frozen=True)
class Capability:
    """One action or tool that the caller may see. ``raw`` is the whole JSON object."""

    name: str
    title: str = ""
    description: str = ""
    effect: str = ""
    needs_approval: bool = False
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    providers: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Invoked:
    """The result of a call, with the id of its record and the provider that ran it."""

    result: Any
    id: str = ""
    provider: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Approval:
    """A question to an operator about one call.

    ``state`` is pending, approved, denied, expired, superseded or ended. ``input`` is the input
    of the call while the approval is pending and was read by its id.
    """

    id: str
    state: str = ""
    principal: str = ""
    capability: str = ""
    effect: str = ""
    summary: str = ""
    decision: str = ""
    input: Any = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def decided(self) -> bool:
        """Whether the approval is not pending any more."""
        return self.state != "pending"


@dataclass(frozen=True)
class Reply:
    """The reply to a chat message. If ``type`` is confirmation, the run waits for an approval."""

    type: str
    text: str = ""
    run: str = ""
    error: Error | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Event:
    """An event of a streamed chat message or of a run. ``data`` is its JSON value."""

    type: str
    data: Any = None
    id: str = ""


@dataclass(frozen=True)
class Run:
    """A run of junctor's agent: working, waiting, completed, failed or cancelled."""

    id: str
    state: str = ""
    session: str = ""
    approvals: tuple[str, ...] = ()
    error: Error | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.state in ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Task:
    """A durable task of the caller.

    ``state`` is submitted, working, input_required, auth_required, completed, failed, rejected,
    cancelled or interrupted.
    """

    id: str
    state: str = ""
    status: str = ""
    result: Any = None
    error: Error | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def ended(self) -> bool:
        """Whether the task is over."""
        return self.state in ("completed", "failed", "rejected", "cancelled", "interrupted")


@dataclass(frozen=True)
class NodeInfo:
    """A node that has joined the gateway."""

    id: str
    status: str = ""
    labels: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    load: float = 0.0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


class CallOptions(TypedDict, total=False):
    """The options of a call. All of them may be omitted.

    ``select`` chooses the provider, for example ``{"endpoint": "demo"}`` or ``{"node": "laptop"}``.
    ``timeout`` is a number of seconds for the work. With an ``idempotency_key`` the same call is
    made at most once. ``session`` and ``context`` describe the conversation. ``load_balancing`` is
    True, the name of a strategy or an object. With ``approval_wait`` a call that needs an approval
    is repeated for so many seconds, until an operator has decided.
    """

    select: Mapping[str, str]
    timeout: float
    idempotency_key: str
    session: str
    context: Mapping[str, Any]
    load_balancing: bool | str | Mapping[str, Any]
    approval_wait: float


class Client:
    """A client of one junctor server. It is safe for use by several threads.

    Without arguments, the address and the token are those of JUNCTOR_URL and JUNCTOR_TOKEN.
    ``timeout`` bounds one request in seconds; of a stream, the time between two items.
    ``ca_file`` is the certificate of the authority that signed the server's certificate; without
    it the authorities of the system apply. Redirects are not followed, and answers above 64 MiB
    are refused. Each method raises :class:`junctor.Error`.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 300.0, ca_file: str | None = None) -> None:
        url = url if url is not None else os.environ.get("JUNCTOR_URL", "http://127.0.0.1:7777")
        token = token if token is not None else os.environ.get("JUNCTOR_TOKEN", "")
        self.timeout = timeout
        self._http = Transport(url, token.strip(), "junctor-python/" + __version__, ca_file)

    def __repr__(self) -> str:
        return f"Client({self._http.base!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._http.base

    # ---- Requests ----------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """Send a request of the HTTP API and return the JSON value of the response, or None.

        A body of type bytes is sent unchanged, any other body as JSON.
        """
        data, kind = _body(body)
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        response = self._http.send(method, path, data, content_type=kind, deadline=deadline)
        if response.status >= 300:
            raise response.failure()
        answer = response.read()
        return _decode(answer) if answer.strip() else None

    def lines(self, method: str, path: str, body: Any = None) -> Iterator[Any]:
        """Send a request and yield each JSON value of the streamed response."""
        data, kind = _body(body)
        response = self._http.send(method, path, data, content_type=kind, accept="application/x-ndjson", idle=self.timeout)
        if response.status >= 300:
            raise response.failure()
        for line in response.lines():
            yield _decode(line)

    def status(self) -> dict[str, Any]:
        """Return the status of the server, with the principal of the token."""
        return _object(self.request("GET", "/api/v1/status"))

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the server is ready. It raises the last error when the time is over."""
        end = time.monotonic() + timeout
        while True:
            try:
                response = self._http.send("GET", "/readyz", None, deadline=end)
                response.read()
                if response.status == 200:
                    return
                last = Error("unavailable", f"the server is not ready: it answers {response.status}")
            except Error as err:
                if err.code == "cancelled":
                    raise
                last = err
            if time.monotonic() + 0.05 > end:
                raise last
            self._http.sleep(0.05)

    # ---- Capabilities ------------------------------------------------------

    def capabilities(self, context: Mapping[str, Any] | None = None) -> list[Capability]:
        """Return the actions and tools that the token may see."""
        path = "/api/v1/catalog/agent"
        page = _object(self.request("GET", path) if context is None else self.request("POST", path, context))
        policies: dict[str, Mapping[str, Any]] = {}
        for entry in _objects(page.get("entries")):
            policies[_text(entry.get("capabilityId"))] = _dict(entry.get("policy"))
        return [_capability(a, policies) for a in _objects(page.get("actions"))]

    def search(self, query: str, limit: int | None = None) -> list[Capability]:
        """Return the capabilities that fit a description of the work."""
        given: dict[str, Any] = {"query": query}
        if limit is not None:
            given["limit"] = limit
        return [_capability(a, {}) for a in _objects(_dict(self.call("catalog.search", given)).get("actions"))]

    def describe(self, name: str) -> Capability:
        """Return one capability with its schemas."""
        return _capability(_dict(self.call("catalog.describe", {"name": name})), {})

    def explain(self, target: str, select: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return which provider a call would reach, and why. Nothing is called."""
        query = [("action", target), *(("select", f"{k}={v}") for k, v in (select or {}).items())]
        return _object(self.request("GET", "/api/v1/catalog/explain?" + urlencode(query)))

    # ---- Calls -------------------------------------------------------------

    def call(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Any:
        """Call a capability and return its result.

        The target is an action (``fs.readText``), a tool, or a member of a module
        (``greeter:action:GREET``).
        """
        return self.invoke(target, input, **options).result

    def invoke(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Invoked:
        """Call a capability and return its result with the id of its record."""
        body = _invocation(target, input, options)
        timeout = options["timeout"] + _GRACE if "timeout" in options else None
        end = time.monotonic() + options.get("approval_wait", 0.0)
        delay = _FIRST_POLL
        while True:
            try:
                return _invoked(self.request("POST", "/api/v1/invocations", body, timeout=timeout))
            except Error as err:
                if err.code != "approval_required" or time.monotonic() + delay > end:
                    raise
            # The same call with the same input joins the open approval, runs after it was
            # given, and fails with the code denied after it was refused.
            self._http.sleep(delay)
            delay = min(delay * 1.5, _LAST_POLL)

    def stream(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Iterator[Any]:
        """Call a capability and yield the chunks of its result as they arrive.

        A capability that does not stream yields its result.
        """
        options.pop("approval_wait", None)
        body = _invocation(target, input, options)
        body["stream"] = True
        chunks = 0
        for item in self.lines("POST", "/api/v1/invocations", body):
            item = _dict(item)
            progress = item.get("progress")
            if isinstance(item.get("error"), dict):
                raise Error.from_dict(item["error"])
            if isinstance(progress, dict):
                if progress.get("data") is not None and not progress.get("stage"):
                    chunks += 1
                    yield progress["data"]
            elif not chunks and "result" in item:
                yield item["result"]

    def call_node(self, function: str, *args: Any, node: str | None = None, options: CallOptions | None = None, **kwargs: Any) -> Any:
        """Call a function of a node and return its result.

        Without a node, the gateway chooses the least loaded node that offers the function.
        """
        return self.call("device.function.invoke", {"function": function, "args": _arguments(args, kwargs)}, **_on_node(node, options))

    def stream_node(self, function: str, *args: Any, node: str | None = None, options: CallOptions | None = None,
                    **kwargs: Any) -> Iterator[Any]:
        """Call a function of a node and yield the chunks of its stream."""
        return self.stream("device.function.invoke", {"function": function, "args": _arguments(args, kwargs)}, **_on_node(node, options))

    def cancel(self, invocation: str) -> None:
        """Cancel a running call by the id of its record. It needs an operator's token."""
        self.request("DELETE", "/api/v1/invocations/" + _id(invocation))

    def nodes(self, *, labels: tuple[str, ...] = (), functions: tuple[str, ...] = (), status: str = "") -> list[NodeInfo]:
        """Return the nodes that the token may see."""
        query = [("limit", "1000"), *(("label", x) for x in labels), *(("function", x) for x in functions)]
        if status:
            query.append(("status", status))
        out: list[NodeInfo] = []
        for page in self._pages("/api/v1/nodes", query):
            out += [_node(n) for n in _objects(page.get("nodes"))]
        return out

    def _pages(self, path: str, query: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        cursor = ""
        for _ in range(_MAX_PAGES):
            page = _object(self.request("GET", path + "?" + urlencode([*query, *([("cursor", cursor)] if cursor else [])])))
            yield page
            cursor = _text(page.get("next"))
            if not cursor:
                return
        raise Error("too_large", f"the list has more than {_MAX_PAGES} pages")

    # ---- Approvals ---------------------------------------------------------

    def approvals(self, state: str = "") -> list[Approval]:
        """Return the approvals in a state, the newest first. It needs an operator's token."""
        out: list[Approval] = []
        after = ""
        for _ in range(_MAX_PAGES):
            query = {k: v for k, v in (("state", state), ("after", after)) if v}
            page = _object(self.request("GET", "/api/v1/approvals" + ("?" + urlencode(query) if query else "")))
            out += [_approval(a) for a in _objects(page.get("approvals"))]
            after = _text(page.get("next"))
            if not after:
                return out
        raise Error("too_large", f"the list has more than {_MAX_PAGES} pages")

    def approval(self, id: str) -> Approval:
        """Return one approval. It needs an operator's token."""
        page = _object(self.request("GET", "/api/v1/approvals/" + _id(id)))
        return _approval(_dict(page.get("approval")), page.get("input"))

    def decide(self, id: str, decision: str, *, answer: str = "") -> Approval:
        """Decide an approval: once, session, timed, always or deny. It needs an operator's token."""
        body = {"decision": decision} if not answer else {"decision": decision, "answer": answer}
        return _approval(_dict(_object(self.request("POST", "/api/v1/approvals/" + _id(id), body)).get("approval")))

    def wait_approval(self, id: str, timeout: float = 3600.0) -> Approval:
        """Wait until an approval is decided. It needs an operator's token.

        An agent cannot read approvals; it passes ``approval_wait`` to its call.
        """
        def read() -> Approval:
            return self.approval(id)
        return self._until(read, _decided, timeout, f"the approval {id}")

    # ---- Chat --------------------------------------------------------------

    def chat(self, text: str, session: str = "python") -> Reply:
        """Send a message to junctor's agent and return its reply.

        If the run needs an approval, the type of the reply is confirmation. Then
        :meth:`wait_run` waits for its end.
        """
        return _reply(self.request("POST", "/api/v1/chat/messages", {"session": session, "text": text}))

    def chat_stream(self, text: str, session: str = "python") -> Iterator[Event]:
        """Send a message and yield events: text, progress and, at the end, reply.

        The data of the last event is a :class:`Reply`.
        """
        body = {"session": session, "text": text, "stream": True}
        for item in self.lines("POST", "/api/v1/chat/messages", body):
            for name, data in _dict(item).items():
                if name == "error":
                    raise Error.from_dict(_dict(data))
                yield Event(name, _reply(data) if name == "reply" else data)

    def history(self, session: str = "python", *, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return messages of a conversation, the oldest first."""
        query = urlencode({"after": after, "limit": limit})
        return _objects(_object(self.request("GET", f"/api/v1/chat/sessions/{_id(session)}/messages?{query}")).get("messages"))

    def runs(self, *, session: str = "", state: str = "", limit: int = 100) -> list[Run]:
        """Return runs of the agent, the newest first."""
        query = urlencode({k: v for k, v in (("session", session), ("state", state), ("limit", str(limit))) if v})
        return [_run(r) for r in _objects(_object(self.request("GET", "/api/v1/agent/runs?" + query)).get("runs"))]

    def run(self, id: str) -> Run:
        """Return one run of the agent."""
        return _run(_object(self.request("GET", "/api/v1/agent/runs/" + _id(id))))

    def run_events(self, id: str, after: str = "") -> Iterator[Event]:
        """Yield the events of a run until it ends.

        ``after`` is the id of the last event that was received, to continue a broken stream.
        """
        path = f"/api/v1/agent/runs/{_id(id)}/events"
        for item in self.lines("GET", path + ("?" + urlencode({"after": after}) if after else "")):
            item = _dict(item)
            yield Event(_text(item.get("type")), item, _text(item.get("id")))

    def wait_run(self, id: str, timeout: float = 3600.0) -> Run:
        """Wait until a run has ended."""
        def read() -> Run:
            return self.run(id)
        return self._until(read, _run_ended, timeout, f"the run {id}")

    def cancel_run(self, id: str) -> None:
        """End a run."""
        self.request("POST", f"/api/v1/agent/runs/{_id(id)}/cancel", {})

    # ---- Tasks -------------------------------------------------------------

    def tasks(self, *, state: str = "") -> list[Task]:
        """Return the tasks of the caller."""
        out: list[Task] = []
        for page in self._pages("/api/v1/tasks", [("limit", "100"), *([("state", state)] if state else [])]):
            out += [_task(t) for t in _objects(page.get("tasks"))]
        return out

    def task(self, id: str) -> Task:
        """Return one task."""
        return _task(_dict(_object(self.request("GET", "/api/v1/tasks/" + _id(id))).get("task")))

    def wait_task(self, id: str, timeout: float = 3600.0) -> Task:
        """Wait until a task has ended or needs an answer."""
        def read() -> Task:
            return self.task(id)
        return self._until(read, _task_rests, timeout, f"the task {id}")

    def cancel_task(self, id: str) -> Task:
        """Cancel a task."""
        return _task(_dict(_object(self.request("POST", f"/api/v1/tasks/{_id(id)}/cancel", {})).get("task")))

    def answer_task(self, id: str, answer: Mapping[str, Any], key: str = "") -> Task:
        """Answer a question of a task, for example ``{"action": "accept", "content": {…}}``."""
        body: dict[str, Any] = {"answer": dict(answer)}
        if key:
            body["key"] = key
        return _task(_dict(_object(self.request("POST", f"/api/v1/tasks/{_id(id)}/answer", body)).get("task")))

    def _until(self, read: Callable[[], _T], done: Callable[[_T], bool], timeout: float, what: str) -> _T:
        end = time.monotonic() + timeout
        delay = _FIRST_POLL / 2
        while not done(found := read()):
            if time.monotonic() + delay > end:
                raise Error("timeout", f"{what} was not finished within {timeout:g} s")
            self._http.sleep(delay)
            delay = min(delay * 1.5, _LAST_POLL)
        return found


class AsyncClient:
    """The client for asyncio. Its methods are those of :class:`Client`.

    Requests run in threads of the client, at most 64 at once. A cancelled request is broken off.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 300.0, ca_file: str | None = None) -> None:
        self._sync = Client(url, token, timeout=timeout, ca_file=ca_file)
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="junctor-client")

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._sync.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._sync.url

    async def _do(self, work: Callable[..., _T], *args: Any, flight: Flight | None = None, **kwargs: Any) -> _T:
        own = flight or Flight()
        transport = self._sync._http

        def run() -> _T:
            if own.ended.is_set():
                raise Error("cancelled", "the call was cancelled")
            transport.flight = own
            try:
                return work(*args, **kwargs)
            finally:
                transport.flight = None

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except asyncio.CancelledError:
            own.end()
            raise

    async def _items(self, items: Iterator[_T]) -> AsyncIterator[_T]:
        flight = Flight()
        try:
            while (item := await self._do(next, items, _END, flight=flight)) is not _END:
                yield item
        finally:
            flight.end()

    async def request(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """See :meth:`Client.request`."""
        return await self._do(self._sync.request, method, path, body, timeout=timeout)

    def lines(self, method: str, path: str, body: Any = None) -> AsyncIterator[Any]:
        """See :meth:`Client.lines`."""
        return self._items(self._sync.lines(method, path, body))

    async def status(self) -> dict[str, Any]:
        """See :meth:`Client.status`."""
        return await self._do(self._sync.status)

    async def wait_ready(self, timeout: float = 30.0) -> None:
        """See :meth:`Client.wait_ready`."""
        await self._do(self._sync.wait_ready, timeout)

    async def capabilities(self, context: Mapping[str, Any] | None = None) -> list[Capability]:
        """See :meth:`Client.capabilities`."""
        return await self._do(self._sync.capabilities, context)

    async def search(self, query: str, limit: int | None = None) -> list[Capability]:
        """See :meth:`Client.search`."""
        return await self._do(self._sync.search, query, limit)

    async def describe(self, name: str) -> Capability:
        """See :meth:`Client.describe`."""
        return await self._do(self._sync.describe, name)

    async def explain(self, target: str, select: Mapping[str, str] | None = None) -> dict[str, Any]:
        """See :meth:`Client.explain`."""
        return await self._do(self._sync.explain, target, select)

    async def call(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Any:
        """See :meth:`Client.call`."""
        return await self._do(self._sync.call, target, input, **options)

    async def invoke(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Invoked:
        """See :meth:`Client.invoke`."""
        return await self._do(self._sync.invoke, target, input, **options)

    def stream(self, target: str, input: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> AsyncIterator[Any]:
        """See :meth:`Client.stream`."""
        return self._items(self._sync.stream(target, input, **options))

    async def call_node(self, function: str, *args: Any, node: str | None = None, options: CallOptions | None = None,
                        **kwargs: Any) -> Any:
        """See :meth:`Client.call_node`."""
        return await self._do(lambda: self._sync.call_node(function, *args, node=node, options=options, **kwargs))

    def stream_node(self, function: str, *args: Any, node: str | None = None, options: CallOptions | None = None,
                    **kwargs: Any) -> AsyncIterator[Any]:
        """See :meth:`Client.stream_node`."""
        return self._items(self._sync.stream_node(function, *args, node=node, options=options, **kwargs))

    async def cancel(self, invocation: str) -> None:
        """See :meth:`Client.cancel`."""
        await self._do(self._sync.cancel, invocation)

    async def nodes(self, *, labels: tuple[str, ...] = (), functions: tuple[str, ...] = (), status: str = "") -> list[NodeInfo]:
        """See :meth:`Client.nodes`."""
        return await self._do(self._sync.nodes, labels=labels, functions=functions, status=status)

    async def approvals(self, state: str = "") -> list[Approval]:
        """See :meth:`Client.approvals`."""
        return await self._do(self._sync.approvals, state)

    async def approval(self, id: str) -> Approval:
        """See :meth:`Client.approval`."""
        return await self._do(self._sync.approval, id)

    async def decide(self, id: str, decision: str, *, answer: str = "") -> Approval:
        """See :meth:`Client.decide`."""
        return await self._do(self._sync.decide, id, decision, answer=answer)

    async def wait_approval(self, id: str, timeout: float = 3600.0) -> Approval:
        """See :meth:`Client.wait_approval`."""
        return await self._do(self._sync.wait_approval, id, timeout)

    async def chat(self, text: str, session: str = "python") -> Reply:
        """See :meth:`Client.chat`."""
        return await self._do(self._sync.chat, text, session)

    def chat_stream(self, text: str, session: str = "python") -> AsyncIterator[Event]:
        """See :meth:`Client.chat_stream`."""
        return self._items(self._sync.chat_stream(text, session))

    async def history(self, session: str = "python", *, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """See :meth:`Client.history`."""
        return await self._do(self._sync.history, session, after=after, limit=limit)

    async def runs(self, *, session: str = "", state: str = "", limit: int = 100) -> list[Run]:
        """See :meth:`Client.runs`."""
        return await self._do(self._sync.runs, session=session, state=state, limit=limit)

    async def run(self, id: str) -> Run:
        """See :meth:`Client.run`."""
        return await self._do(self._sync.run, id)

    def run_events(self, id: str, after: str = "") -> AsyncIterator[Event]:
        """See :meth:`Client.run_events`."""
        return self._items(self._sync.run_events(id, after))

    async def wait_run(self, id: str, timeout: float = 3600.0) -> Run:
        """See :meth:`Client.wait_run`."""
        return await self._do(self._sync.wait_run, id, timeout)

    async def cancel_run(self, id: str) -> None:
        """See :meth:`Client.cancel_run`."""
        await self._do(self._sync.cancel_run, id)

    async def tasks(self, *, state: str = "") -> list[Task]:
        """See :meth:`Client.tasks`."""
        return await self._do(self._sync.tasks, state=state)

    async def task(self, id: str) -> Task:
        """See :meth:`Client.task`."""
        return await self._do(self._sync.task, id)

    async def wait_task(self, id: str, timeout: float = 3600.0) -> Task:
        """See :meth:`Client.wait_task`."""
        return await self._do(self._sync.wait_task, id, timeout)

    async def cancel_task(self, id: str) -> Task:
        """See :meth:`Client.cancel_task`."""
        return await self._do(self._sync.cancel_task, id)

    async def answer_task(self, id: str, answer: Mapping[str, Any], key: str = "") -> Task:
        """See :meth:`Client.answer_task`."""
        return await self._do(self._sync.answer_task, id, answer, key)


# ---- Encoding and decoding -------------------------------------------------


def _body(body: Any) -> tuple[bytes | None, str]:
    if body is None:
        return None, ""
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    try:
        return _json.dumps(body), "application/json"
    except (ValueError, TypeError, RecursionError) as err:
        raise Error("invalid_input", f"the request cannot be written as JSON: {err}") from None


def _decode(data: bytes) -> Any:
    try:
        return _json.loads(data, max_depth=1000)
    except (ValueError, RecursionError):
        raise Error("failed", "the server's answer is not JSON; is it a junctor server?") from None


def _invocation(target: str, input: Mapping[str, Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in CallOptions.__annotations__:
            raise TypeError(f"a call has no option {name!r}; there are {', '.join(CallOptions.__annotations__)}")
    body: dict[str, Any] = {"target": target}
    if input is not None:
        body["input"] = input
    for name in ("select", "session", "context", "idempotency_key", "load_balancing"):
        if name in options:
            body[name] = options[name]
    if "timeout" in options:
        body["timeout"] = f"{max(1, round(options['timeout'] * 1000))}ms"
    return body


def _decided(approval: Approval) -> bool:
    return approval.decided


def _run_ended(run: Run) -> bool:
    return run.ended


def _task_rests(task: Task) -> bool:
    return task.ended or task.state.endswith("_required")


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"__args__": list(args), "__kwargs__": kwargs}


def _on_node(node: str | None, options: CallOptions | None) -> CallOptions:
    out: CallOptions = {}
    out.update(options or {})
    if node:
        out["select"] = {**out.get("select", {}), "node": node}
    elif "select" not in out and "load_balancing" not in out:
        out["load_balancing"] = True
    return out


def _id(id: str) -> str:
    if not id or id in (".", ".."):
        raise Error("invalid_input", f"{id!r} is not an id")
    return quote(id, safe="")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Error("failed", "the server's answer is not a JSON object; is it a junctor server?")
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _error(value: Any) -> Error | None:
    return Error.from_dict(value) if isinstance(value, dict) else None


def _capability(wire: dict[str, Any], policies: Mapping[str, Mapping[str, Any]]) -> Capability:
    found = [policies[e] for e in _texts(wire.get("entries")) if e in policies]
    effects = [_text(p.get("effect")) for p in found]
    return Capability(
        name=_text(wire.get("name")),
        title=_text(wire.get("title")),
        description=_text(wire.get("description")),
        effect=_text(wire.get("effect")) or (effects[0] if effects else ""),
        needs_approval=bool(found) and all(p.get("approval") == "required" for p in found),
        input_schema=_dict(wire.get("inputSchema") or wire.get("schema")),
        output_schema=_dict(wire.get("outputSchema")),
        providers=_texts(wire.get("providers")),
        raw=wire,
    )


def _invoked(value: Any) -> Invoked:
    wire = _object(value)
    record = _dict(wire.get("invocation"))
    return Invoked(wire.get("result"), _text(record.get("id")), _text(record.get("provider")), wire)


def _approval(wire: dict[str, Any], input: Any = None) -> Approval:
    names = ("id", "state", "principal", "capability", "effect", "summary", "decision")
    return Approval(**{n: _text(wire.get(n)) for n in names}, input=input, raw=wire)


def _reply(value: Any) -> Reply:
    wire = _object(value)
    return Reply(_text(wire.get("type")), _text(_dict(wire.get("message")).get("text")), _text(wire.get("run")),
        _error(wire.get("error")), wire)


def _run(wire: dict[str, Any]) -> Run:
    return Run(_text(wire.get("id")), _text(wire.get("state")), _text(wire.get("session")), _texts(wire.get("approvals")),
               _error(wire.get("error")), wire)


def _task(wire: dict[str, Any]) -> Task:
    return Task(_text(wire.get("id")), _text(wire.get("state")), _text(wire.get("status")), wire.get("result"),
        _error(wire.get("error")), wire)


def _node(wire: dict[str, Any]) -> NodeInfo:
    load = wire.get("current_load")
    return NodeInfo(_text(wire.get("node_id")), _text(wire.get("status")), _texts(wire.get("capabilities")), _texts(wire.get("functions")),
                    float(load) if isinstance(load, (int, float)) else 0.0, wire)
