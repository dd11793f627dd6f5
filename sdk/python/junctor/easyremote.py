"""The names of EasyRemote on top of junctor.

A program that was written for EasyRemote changes its import::

    from junctor.easyremote import Client, ComputeNode, remote

and gives tokens: JUNCTOR_NODE_TOKEN to nodes, JUNCTOR_TOKEN to clients, or the argument ``token``.
Values are JSON, and bytes are kept. Objects that only pickle could carry, and code as text, are
refused.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from . import _session
from . import node as _node
from .client import CallOptions, NodeInfo
from .client import Client as _Client
from .errors import Error as RemoteExecutionError

__all__ = ["Client", "ComputeNode", "RemoteExecutionError", "Server", "get_default_client", "register", "remote", "set_default_gateway"]

_CODE = ("code transfer with exec is not supported; install a skill on the node instead (junctor skill install NODE FOLDER), whose code "
         "runs in a sandbox")
_PICKLE = ("{} has a value of type {}, which only pickle could carry; junctor sends JSON, because pickle executes code when it is "
           "read. Pass numbers, texts, bytes, lists, dictionaries or dataclasses, for example array.tolist()")


def _address(address: str | None) -> str | None:
    if address is None:
        address = os.environ.get("JUNCTOR_GATEWAY") or os.environ.get("EASYREMOTE_GATEWAY") or os.environ.get("EASYREMOTE_GATEWAY_ADDRESS")
    if not address or "://" in address:
        return address
    host = address.rpartition(":")[0] or address
    return ("http://" if host in ("localhost", "127.0.0.1", "[::1]") else "https://") + address


def _checked(value: Any, what: str) -> Any:
    """Return a value as JSON. It raises TypeError for a value that only pickle could carry."""
    def refuse(inner: Any) -> Any:
        try:
            return _session._default(inner)
        except TypeError:
            raise TypeError(_PICKLE.format(what, type(inner).__name__)) from None
    return json.loads(json.dumps(value, default=refuse, allow_nan=False))


class ComputeNode:
    """A node with the interface of EasyRemote.

    ``gateway_address`` is ``host:port`` or a URL. ``capabilities`` become labels. Without a
    ``directory`` for a key, the node needs a token each time.
    """

    def __init__(self, gateway_address: str | None = None, node_id: str | None = None, *, vps_address: str | None = None,
                 token: str | None = None, directory: str | os.PathLike[str] | None = None,
                 capabilities: Sequence[str] | Mapping[str, Any] = (), max_concurrent_tasks: int = 64, **ignored: Any) -> None:
        for name in ("enable_pickle", "allow_transferred_code"):
            if ignored.get(name):
                raise TypeError(_CODE)
        self.node = _node.Node(_address(gateway_address or vps_address), token=token, id=node_id or "", directory=directory,
                               labels=list(capabilities), max_concurrent=max_concurrent_tasks)
        self._thread: threading.Thread | None = None

    @property
    def node_id(self) -> str:
        """The id of the node."""
        return self.node.id

    def register(self, func: Callable[..., Any] | None = None, *, name: str | None = None, replace: bool = False, description: str = "",
                 tags: Sequence[str] = (), timeout_seconds: float | None = None, max_concurrent: int = 0, priority: int = 5,
                 effect: _node.Effect = "execute", **ignored: Any) -> Any:
        """Register a function, as a decorator with or without arguments. Whether it streams follows from the function."""
        def apply(func: Callable[..., Any]) -> Callable[..., Any]:
            if isinstance(func, (str, bytes)):
                raise TypeError(_CODE)
            self.node.add(_writable(func), name=name or func.__name__, description=description, effect=effect, tags=tags,
                          timeout=timeout_seconds, priority=priority, max_concurrent=max_concurrent, replace=replace)
            return func
        return apply if func is None else apply(func)

    def unregister(self, function_name: str) -> bool:
        """Remove a function, and return whether there was one."""
        return self.node.remove(function_name)

    def serve(self, blocking: bool = True) -> None:
        """Join and serve calls; with ``blocking=False`` in a thread."""
        if blocking:
            self.node.run()
        elif self._thread is None:
            self._thread = threading.Thread(target=self.node.run, name="easyremote-node", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the calls that run, and leave."""
        self.node.stop()
        if self._thread is not None:
            self._thread.join(35)


def _writable(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with results that are checked to be JSON."""
    what = f"the result of {func.__name__}"
    if inspect.isasyncgenfunction(func):
        async def items_async(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for item in func(*args, **kwargs):
                yield _checked(item, what)
        return functools.wraps(func)(items_async)
    if inspect.isgeneratorfunction(func):
        def items(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in func(*args, **kwargs):
                yield _checked(item, what)
        return functools.wraps(func)(items)
    if inspect.iscoroutinefunction(func):
        async def result_async(*args: Any, **kwargs: Any) -> Any:
            return _checked(await func(*args, **kwargs), what)
        return functools.wraps(func)(result_async)

    def result(*args: Any, **kwargs: Any) -> Any:
        return _checked(func(*args, **kwargs), what)
    return functools.wraps(func)(result)


class Client:
    """A client with the interface of EasyRemote."""

    def __init__(self, gateway_address: str | None = None, *, token: str | None = None, timeout: float = 300.0, **ignored: Any) -> None:
        self.client = _Client(_address(gateway_address), token, timeout=timeout)

    def execute(self, function_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function on the least loaded node that offers it."""
        return self.execute_on_node("", function_name, *args, **kwargs)

    def execute_on_node(self, node_id: str, function_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function of one node."""
        return self._call(function_name, args, kwargs, node_id, {})

    def stream(self, function_name: str, *args: Any, node_id: str = "", **kwargs: Any) -> Iterator[Any]:
        """Call a function and yield the chunks of its stream."""
        places, names = self._arguments(function_name, args, kwargs)
        return map(_bytes, self.client.stream_node(function_name, *places, node=node_id or None, **names))

    def _call(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any], node: str, options: CallOptions) -> Any:
        places, names = self._arguments(function, args, kwargs)
        return _bytes(self.client.call_node(function, *places, node=node or None, options=options, **names))

    @staticmethod
    def _arguments(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return _checked(list(args), f"the call of {function}"), _checked(dict(kwargs), f"the call of {function}")

    def list_nodes(self) -> list[NodeInfo]:
        """Return the nodes of the gateway."""
        return self.client.nodes()

    def disconnect(self) -> None:
        """Close the connections."""
        self.client.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()


def _bytes(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["$bytes"]:
        from .schema import decode
        return decode(bytes, value, "the result")
    return value


_lock = threading.Lock()
_default_client: Client | None = None
_default_node: ComputeNode | None = None


def set_default_gateway(gateway_address: str, *, token: str | None = None) -> Client:
    """Set the gateway that :func:`remote` uses, and return its client."""
    global _default_client
    client = Client(gateway_address, token=token)
    with _lock:
        _default_client = client
    return client


def get_default_client() -> Client:
    """Return the client of :func:`set_default_gateway`, else one of the environment."""
    global _default_client
    with _lock:
        if _default_client is None:
            _default_client = Client()
        return _default_client


def register(func: Callable[..., Any] | None = None, *, node: ComputeNode | None = None, **options: Any) -> Any:
    """Register a function with a node, by default one for the environment, and return the function.

    ``register.node()`` returns the default node, whose ``serve`` joins the gateway.
    """
    return (node or _node_of_environment()).register(func, **options)


def _node_of_environment() -> ComputeNode:
    global _default_node
    with _lock:
        if _default_node is None:
            _default_node = ComputeNode()
        return _default_node


register.node = _node_of_environment  # type: ignore[attr-defined]


def remote(func: Callable[..., Any] | None = None, *, node_id: str | None = None, function_name: str | None = None,
           timeout: float | None = None, stream: bool = False, load_balancing: bool | str | Mapping[str, Any] = True,
           gateway_address: str | None = None) -> Any:
    """Turn a function into a call of the function of its name on a node.

    The body is not executed. An async function stays awaitable.
    """
    own = Client(gateway_address) if gateway_address else None

    def apply(func: Callable[..., Any]) -> Callable[..., Any]:
        name = function_name or func.__name__
        options: CallOptions = {} if node_id else {"load_balancing": load_balancing or True}
        if timeout is not None:
            options["timeout"] = timeout

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            client = own or get_default_client()
            if stream:
                return client.stream(name, *args, node_id=node_id or "", **kwargs)
            return client._call(name, args, kwargs, node_id or "", options)

        if inspect.iscoroutinefunction(func) and not stream:
            @functools.wraps(func)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await asyncio.to_thread(call, *args, **kwargs)
            return call_async
        return call
    return apply if func is None else apply(func)


class Server:
    """A gateway in the process, which junctor does not have."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("the gateway is the program junctor; start it with: junctor serve")
