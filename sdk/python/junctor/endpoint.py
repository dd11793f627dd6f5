"""Endpoints: servers of the capability-router protocol whose modules join junctor's catalog."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from . import _json, _router
from ._router import WireError, wire_error
from .errors import CODES, DECODE_FAILED, REQUEST_FAILED, UNAVAILABLE, Error
from .schema import Signature, description_of

__all__ = [
    "ActionResult", "Endpoint", "Evaluator", "EvaluatorCall", "FieldCall", "FieldEffect", "FieldEvaluator", "Module", "ProviderResult",
    "ResponseEvaluator", "RouteRequest", "RouteResponse", "Server",
]

_log = logging.getLogger("junctor.endpoint")
_F = TypeVar("_F", bound=Callable[..., Any])
Handler = Callable[..., Any]
ViewKind = Literal["release", "system", "developer", "preview"]

_BODY_TIMEOUT = 30.0
_PACE = 64 << 10  # the slowest caller, in bytes a second
_IDLE_TIMEOUT, _HEAD_TIMEOUT = 60.0, 30.0
_LINGER_TIMEOUT, _MAX_LINGER = 2.0, 8 << 20
_MAX_CONNECTIONS = 256
_SLOTS = ("chat-sidebar", "character", "nav-page")  # those that routers of every generation support


@dataclass
class ActionResult:
    """The result of an action. ``values`` and ``data`` are JSON objects or None."""

    text: str = ""
    values: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    actions: Sequence[str] | None = None


@dataclass
class ProviderResult:
    """The result of a provider. ``values`` and ``data`` are JSON objects or None."""

    text: str = ""
    values: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class EvaluatorCall:
    """The input of a phase of an evaluator.

    ``prepared`` is None until prepare has returned, ``output`` until process.
    """

    message: Mapping[str, Any]
    state: Mapping[str, Any]
    options: Mapping[str, Any]
    prepared: Any = None
    output: Any = None


@dataclass(frozen=True)
class FieldCall:
    """The input of a phase of a field evaluator.

    ``value`` is the model's value of the field. ``parsed`` is what the caller has besides: the
    model's whole answer for elizaOS, the value of parse for junctor. Use ``value``.
    """

    context: Mapping[str, Any]
    value: Any = None
    parsed: Mapping[str, Any] | None = None


@dataclass
class FieldEffect:
    """The consequence of a field: a patch of the response, an end of the turn, lines for the developer.

    ``preempt`` is ``{"mode": "ack-and-stop" | "ignore" | "direct-reply", "reason": …}`` or None.
    """

    patch: Mapping[str, Any] | None = None
    preempt: Mapping[str, str] | None = None
    debug: Sequence[str] | None = None


@dataclass(frozen=True)
class RouteRequest:
    """One request of a route. ``params`` are the decoded parameters of the path."""

    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any = None


@dataclass
class RouteResponse:
    """The response of a route. ``body`` is any JSON value; None is an empty body."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Evaluator:
    """An evaluator whose phases are decorators: ``should_run``, ``prepare``, ``build_prompt`` and ``process``."""

    def __init__(self, prompt: str) -> None:
        self._phases: dict[str, Handler] = {
            "shouldRun": lambda call: True, "prepare": lambda call: None, "prompt": lambda call: prompt, "process": lambda call: None,
        }
        self._has: set[str] = set()

    def _set(self, phase: str, function: _F) -> _F:
        self._phases[phase] = function
        self._has.add(phase)
        return function

    def should_run(self, function: _F) -> _F:
        """Register the function that reports whether the evaluator runs. The default is always."""
        return self._set("shouldRun", function)

    def prepare(self, function: _F) -> _F:
        """Register the function whose value later phases receive as ``prepared``."""
        return self._set("prepare", function)

    def build_prompt(self, function: _F) -> _F:
        """Register the function that returns the prompt for the model. The default is the declared one."""
        return self._set("prompt", function)

    def process(self, function: _F) -> _F:
        """Register the function that processes the model's output and returns an object or None."""
        return self._set("process", function)


class ResponseEvaluator:
    """An evaluator of responses whose phases are decorators: ``should_run`` and ``evaluate``."""

    def __init__(self) -> None:
        self._phases: dict[str, Handler] = {"shouldRun": lambda context: True, "evaluate": lambda context: None}

    def should_run(self, function: _F) -> _F:
        """Register the function that reports whether the evaluator runs. The default is always."""
        self._phases["shouldRun"] = function
        return function

    def evaluate(self, function: _F) -> _F:
        """Register the function that returns a patch of the response, an object or None."""
        self._phases["evaluate"] = function
        return function


class FieldEvaluator:
    """An evaluator of one field whose phases are decorators: ``should_run``, ``parse`` and ``handle``."""

    def __init__(self) -> None:
        self._phases: dict[str, Handler] = {"shouldRun": lambda call: True, "parse": lambda call: call.value, "handle": lambda call: None}
        self._has: set[str] = set()

    def should_run(self, function: _F) -> _F:
        """Register the function that reports whether the evaluator runs. The default is always."""
        self._phases["shouldRun"] = function
        return function

    def parse(self, function: _F) -> _F:
        """Register the function that returns the corrected value, or None if it is unusable."""
        self._phases["parse"] = function
        self._has.add("parse")
        return function

    def handle(self, function: _F) -> _F:
        """Register the function that returns a :class:`FieldEffect` or None."""
        self._phases["handle"] = function
        self._has.add("handle")
        return function


class Module:
    """A module: what an endpoint offers. Its methods declare items, most of them as decorators.

    ``id`` has letters, digits, '.', '_' and '-'. ``name`` is shown to people, such as
    ``@you/greeter``. ``config`` holds the settings with their defaults, ``schema`` is its JSON
    Schema. Wrong declarations raise ValueError.
    """

    def __init__(self, id: str, *, name: str = "", description: str = "", version: str = "", priority: float | None = None,
                 contexts: Sequence[str] = (), config: Mapping[str, Any] | None = None, schema: Mapping[str, Any] | None = None,
                 metadata: Mapping[str, Any] | None = None) -> None:
        self.id = id
        self._manifest: dict[str, Any] = {"id": id, "name": name or id}
        for key, value in (("version", version), ("description", description), ("priority", priority), ("contexts", list(contexts)),
                           ("config", config), ("schema", schema), ("metadata", metadata)):
            if value not in ("", None, []):
                self._manifest[key] = value
        self._items: dict[tuple[str, str], Handler] = {}
        self._routes: list[tuple[str, str, Handler]] = []
        self._files: dict[str, dict[str, Any]] = {}
        self._config_of: dict[str, Handler] = {}
        self._decode()

    def _decode(self) -> dict[str, Any]:
        try:
            return _router.decode_module(self._manifest)
        except WireError as err:
            raise ValueError(f"the module {self.id!r} is not what routers accept: {err}") from None

    def _add(self, part: str, key: str, item: Mapping[str, Any]) -> None:
        """Add an item to a list of the manifest, and check it."""
        items = self._manifest.setdefault(part, [])
        entry = {k: v for k, v in item.items() if v not in ("", None, ())}
        if any(all(i[k] == entry.get(k) for k in key.split()) for i in items):
            raise ValueError(f"the module {self.id!r} declares {' '.join(str(entry.get(k)) for k in key.split())!r} twice in {part}")
        items.append(entry)
        try:
            self._decode()
        except ValueError:
            items.pop()
            if not items:
                del self._manifest[part]
            raise

    # ---- Items with a handler ----------------------------------------------

    def action(self, function: Callable[..., Any] | None = None, *, name: str = "", description: str = "", similes: Sequence[str] = (),
               description_compressed: str = "") -> Any:
        """Register a function as an action. The parameters follow from its type hints.

        Without a name it is the function's in upper case, without a description the first
        paragraph of its docstring. A result of type str is the text of the action, an object or a
        dataclass its data; :class:`ActionResult` has both.
        """
        def register(function: _F) -> _F:
            signature = Signature(function)
            called = name or function.__name__.upper()
            parameters = [{"name": p.name, "description": p.description or p.name, "required": p.required, "schema": dict(p.schema)}
                          for p in signature.parameters]
            self._add("actions", "name", {
                "name": called, "description": description or description_of(function) or called,
                "descriptionCompressed": description_compressed, "similes": list(similes) or None,
                "parameters": parameters or None,
            })
            self._items["action.invoke", called] = _action(function, signature)
            return function
        return register if function is None else register(function)

    def provider(self, function: Callable[..., Any] | None = None, *, name: str = "", description: str = "", dynamic: bool = False,
                 private: bool = False, description_compressed: str = "") -> Any:
        """Register a function of the agent's state, an object, as a provider of context.

        The result is a text, an object, or a :class:`ProviderResult`.
        """
        def register(function: _F) -> _F:
            called = name or function.__name__.upper()
            self._add("providers", "name", {
                "name": called, "description": description or description_of(function), "descriptionCompressed": description_compressed,
                "dynamic": dynamic or None, "private": private or None,
            })
            self._items["provider.get", called] = lambda p: _then(function(p.get("state", {})), _reply)
            return function
        return register if function is None else register(function)

    def event(self, name: str) -> Callable[[_F], _F]:
        """Register a function of the payload, an object, as the handler of an event.

        It may return False if it has not handled the event.
        """
        def register(function: _F) -> _F:
            self._add("events", "eventName", {"eventName": name})
            self._items["event.handle", name] = lambda p: _then(function(p.get("payload", {})), lambda r: {"handled": r is not False})
            return function
        return register

    def model(self, type: str, *, priority: float | None = None) -> Callable[[_F], _F]:
        """Register a function of the parameters, any JSON value, as a model of a type."""
        def register(function: _F) -> _F:
            self._add("models", "modelType", {"modelType": type, "priority": priority})
            self._items["model.invoke", type] = lambda p: _then(function(p.get("params")), lambda r: {"result": r})
            return function
        return register

    def service(self, type: str, *, method: str = "", description: str = "", config: Mapping[str, Any] | None = None) -> Callable[[_F], _F]:
        """Register a function as a method of a service. Its arguments are passed by place.

        Without ``method`` it is the function's name. ``description`` and ``config`` describe the
        service, once.
        """
        def register(function: _F) -> _F:
            signature = Signature(function)
            called = method or function.__name__
            found = next((s for s in self._manifest.get("services", ()) if s["serviceType"] == type), None)
            if found is None:
                self._add("services", "serviceType", {"serviceType": type, "capabilityDescription": description, "config": config,
                                                      "methods": [called]})
            else:
                found["methods"].append(called)
                try:
                    self._decode()
                except ValueError:
                    found["methods"].remove(called)
                    raise

            def call(p: Mapping[str, Any]) -> Any:
                args, _ = signature.bind(p.get("args", []), {})
                return _then(function(*args), lambda r: {"result": r})
            self._items["service.call", f"{type}.{called}"] = call
            return function
        return register

    def route(self, method: str, path: str, *, name: str = "", description: str = "", public_reason: str = "",
              public_write: str = "") -> Callable[[_F], _F]:
        """Register a function of a :class:`RouteRequest` as an HTTP route below the agent's address.

        The path may have parameters: ``:name`` matches one segment, a last ``:name*`` all that
        follow. The result is a JSON value or a :class:`RouteResponse`. A route with a
        ``public_reason`` may be called without credentials; unless it is a GET, ``public_write``
        states why callers may change something.
        """
        def register(function: _F) -> _F:
            if method not in _router.VERBS:
                raise ValueError(f"{method!r} is not a method of a route; use {', '.join(_router.VERBS)}")
            if public_write and not public_reason or public_reason and method != "GET" and not public_write:
                raise ValueError(f"the public route {method} {path} needs public_reason and, unless it is a GET, public_write")
            self._add("routes", "method path", {
                "method": method, "path": path, "name": name, "description": description or description_of(function),
                "public": bool(public_reason) or None, "publicReason": public_reason, "publicWrite": public_write,
            })
            self._routes.append((method, path, function))
            return function
        return register

    def lifecycle(self, hook: Literal["init", "dispose", "applyConfig"]) -> Callable[[_F], _F]:
        """Register a function of the configuration and the context as a hook of the module's life.

        Both are objects; the values of the configuration are texts.
        """
        def register(function: _F) -> _F:
            self._hook("lifecycle", hook, _router.LIFECYCLE_HOOKS)
            self._items["lifecycle.call", hook] = lambda p: _then(function(p.get("config", {}), p.get("context", {})), lambda r: {"ok": True})
            return function
        return register

    def app_bridge(self, hook: str) -> Callable[[_F], _F]:
        """Register a function of the context, an object, as a hook of the app. The result is any JSON value."""
        def register(function: _F) -> _F:
            self._hook("appBridge", hook, _router.BRIDGE_HOOKS)
            self._items["appBridge.call", hook] = lambda p: _then(function(p.get("context", {})), lambda r: {"result": r})
            return function
        return register

    def _hook(self, part: str, hook: str, order: Sequence[str]) -> None:
        if hook not in order:
            raise ValueError(f"{hook!r} is not a hook; use {', '.join(order)}")
        hooks = self._manifest.setdefault(part, {"hooks": []})["hooks"]
        if hook in hooks:
            raise ValueError(f"the module {self.id!r} declares the hook {hook} twice")
        hooks.append(hook)
        hooks.sort(key=order.index)

    def evaluator(self, name: str, *, description: str, prompt: str, schema: Mapping[str, Any], similes: Sequence[str] = (),
                  providers: Sequence[str] = (), priority: float | None = None, model_type: str = "") -> Evaluator:
        """Declare an evaluator, which examines a message after it was answered, and return it."""
        entry: dict[str, Any] = {"name": name, "description": description, "prompt": prompt, "schema": dict(schema),
                                 "similes": list(similes) or None, "providers": list(providers) or None, "priority": priority,
                                 "modelType": model_type}
        self._add("evaluators", "name", entry)
        out = Evaluator(prompt)
        entry = self._manifest["evaluators"][-1]
        self._derived(entry, out._has, hasPrepare="prepare", hasProcessor="process")

        def phase(phase: str, finish: Callable[[Any], Any]) -> None:
            def run(p: Mapping[str, Any]) -> Any:
                call = EvaluatorCall(p.get("message", {}), p.get("state", {}), p.get("options", {}), p.get("prepared"), p.get("output"))
                return _then(out._phases[phase](call), finish)
            self._items["evaluator." + phase, name] = run
        phase("shouldRun", lambda r: {"shouldRun": bool(r)})
        phase("prepare", lambda r: {} if r is None else {"prepared": r})
        phase("prompt", lambda r: {"prompt": r})
        phase("process", lambda r: {"result": {} if r is None else r})
        return out

    def response_evaluator(self, name: str, *, description: str = "", priority: float | None = None) -> ResponseEvaluator:
        """Declare an evaluator that adds to an agent's response, and return it."""
        self._add("responseHandlerEvaluators", "name", {"name": name, "description": description, "priority": priority})
        out = ResponseEvaluator()
        self._items["responseHandlerEvaluator.shouldRun", name] = lambda p: _then(
            out._phases["shouldRun"](p.get("context", {})), lambda r: {"shouldRun": bool(r)})
        self._items["responseHandlerEvaluator.evaluate", name] = lambda p: _then(
            out._phases["evaluate"](p.get("context", {})), lambda r: {"patch": {} if r is None else r})
        return out

    def field_evaluator(self, name: str, *, description: str, schema: Mapping[str, Any], priority: float | None = None) -> FieldEvaluator:
        """Declare an evaluator that reads one field of a model's response, and return it."""
        self._add("responseHandlerFieldEvaluators", "name", {"name": name, "description": description, "schema": dict(schema),
                                                             "priority": priority})
        out = FieldEvaluator()
        self._derived(self._manifest["responseHandlerFieldEvaluators"][-1], out._has, hasParse="parse", hasHandle="handle")

        def phase(phase: str, finish: Callable[[Any], Any]) -> None:
            self._items["responseHandlerFieldEvaluator." + phase, name] = lambda p: _then(
                out._phases[phase](FieldCall(p.get("context", {}), p.get("value"), p.get("parsed"))), finish)
        phase("shouldRun", lambda r: {"shouldRun": bool(r)})
        phase("parse", lambda r: {"softFail": True} if r is None else {"value": r})
        phase("handle", lambda r: {"effect": {} if r is None else _without_none(r)})
        return out

    def _derived(self, entry: dict[str, Any], has: set[str], **flags: str) -> None:
        """Derive members of an entry from the phases that are registered when the manifest is read."""
        self._config_of[str(id(entry))] = lambda: entry.update({flag: phase in has for flag, phase in flags.items()})

    # ---- What front ends show ----------------------------------------------

    def view(self, id: str, *, label: str, bundle: bytes | None = None, url: str = "", path: str = "", type: Literal["gui", "tui"] = "gui",
             content_type: str = "text/javascript", kind: ViewKind = "release") -> None:
        """Declare a view: an ES module (``bundle``), or the URL of one that another server serves."""
        entry: dict[str, Any] = {"id": id, "label": label, "viewType": type, "viewKind": kind}
        if (bundle is None) == (not url):
            raise ValueError(f"the view {id!r} needs either bundle or url")
        if type not in ("gui", "tui"):
            raise ValueError(f"{type!r} is not a type of a view; use gui or tui")
        if bundle is None:
            return self._add("views", "id", {**entry, "bundleUrl": url})
        path = path or f"/assets/{id}.js"
        if not path.endswith((".js", ".mjs")):
            raise ValueError(f"the path {path!r} of the view {id!r} must end in .js or .mjs")
        self._add("views", "id", {**entry, "bundlePath": path, "contentType": content_type, "integrity": _router.integrity(bundle)})
        self.asset(path, bundle, content_type)

    def asset(self, path: str, body: bytes, content_type: str) -> None:
        """Declare a further file that a view loads."""
        clean = _router.clean_asset_path(path)
        if clean in self._files:
            raise ValueError(f"the module {self.id!r} declares the file {clean!r} twice")
        file = {"path": clean, "contentType": content_type, "bodyBase64": base64.b64encode(body).decode(), "integrity": _router.integrity(body)}
        try:
            self._files[clean] = _router.decode_result("plugin.asset.get", file)
        except WireError as err:
            raise ValueError(str(err)) from None

    def widget(self, id: str, *, label: str, slot: Literal["chat-sidebar", "character", "nav-page"], kind: ViewKind = "release",
               plugin_id: str = "", icon: str = "", order: float | None = None, default_enabled: bool | None = None, nav_group: str = "",
               component_export: str = "") -> None:
        """Declare a widget, a part of a view in a slot of the agent's pages."""
        if slot not in _SLOTS:
            raise ValueError(f"{slot!r} is not a slot of every router; use {', '.join(_SLOTS)}")
        self._add("widgets", "id", {
            "id": id, "label": label, "slot": slot, "pluginId": plugin_id, "icon": icon, "order": order, "defaultEnabled": default_enabled,
            "navGroup": nav_group, "componentExport": component_export, **_audience(kind),
        })

    def component_type(self, name: str, schema: Mapping[str, Any]) -> None:
        """Declare a type of data that agents store for the module."""
        self._add("componentTypes", "name", {"name": name, "schema": dict(schema)})

    def app(self, *, display_name: str = "", category: str = "", kind: ViewKind = "release", nav_tabs: Sequence[Mapping[str, Any]] = (),
            **more: Any) -> None:
        """Declare how the module presents itself as an application.

        Each of ``nav_tabs`` has id, label and path, and may have a kind. Further members of the
        protocol, such as ``launchUrl`` and ``icon``, are given by their names there.
        """
        if "app" in self._manifest:
            raise ValueError(f"the module {self.id!r} declares its app twice")
        entry: dict[str, Any] = {"displayName": display_name, "category": category, **more}
        entry = {k: v for k, v in entry.items() if v != ""} | _audience(kind)
        if nav_tabs:
            entry["navTabs"] = [{k: v for k, v in t.items() if k != "kind"} | _audience(t.get("kind", "release")) for t in nav_tabs]
        self._manifest["app"] = entry
        try:
            self._decode()
        except ValueError:
            del self._manifest["app"]
            raise

    # ---- The manifest ------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, as routers decode it."""
        for derive in self._config_of.values():
            derive()
        return copy.deepcopy(self._decode())

    def sign(self, key: bytes | str, *, issuer: str, subject: str = "") -> None:
        """Sign the manifest, for agents that require it. Declare everything before.

        The key is a private Ed25519 key as a PEM text. The names of all members must be ASCII.
        It needs the package cryptography.
        """
        from .manifest import sign
        self._manifest.pop("provenance", None)
        self._manifest["provenance"] = sign(self.manifest(), key, issuer=issuer, subject=subject or self.id)

    def _call(self, method: str, params: Mapping[str, Any]) -> Handler:
        """Return the function of the parameters that a call reaches. It raises Error if there is none."""
        row = _router.METHODS[method]
        target = str(params.get(row.target, ""))
        if row.surface == "service":
            target = f"{target}.{params['method']}"
        if row.surface == "route":
            for verb, declared, function in self._routes:
                if verb == params["method"] and (found := _router.match_route(declared, params["path"])) is not None:
                    return _route(function, found)
            target = f"{params['method']} {target}"
        elif row.surface == "view":
            if file := self._files.get(_router.clean_asset_path(target)):
                return lambda p: file
            raise Error("not_found", f"{self.id} has no asset {target[:200]}")
        elif handler := self._items.get((method.removeprefix("plugin."), target)):
            return handler
        raise Error("unknown_capability", f"{self.id} has no {row.surface} {target[:200]!r}")


def _audience(kind: str) -> dict[str, Any]:
    if kind not in ("release", "system", "developer", "preview"):
        raise ValueError(f"{kind!r} is not a kind of view; use release, system, developer or preview")
    return {"developerOnly": kind == "developer", "viewKind": kind}


def _then(value: Any, finish: Callable[[Any], Any]) -> Any:
    """Apply finish to a value, or to what an awaitable returns."""
    if not inspect.isawaitable(value):
        return finish(value)

    async def later() -> Any:
        return finish(await value)
    return later()


def _without_none(value: Any) -> Any:
    if isinstance(value, FieldEffect):
        return {k: v for k, v in vars(value).items() if v is not None}
    return value


def _reply(value: Any) -> dict[str, Any]:
    if isinstance(value, (ActionResult, ProviderResult)):
        out = {k: v for k, v in vars(value).items() if v is not None}
        if not out["text"] and len(out) > 1:
            del out["text"]  # a result needs at least one member
        return out
    if value is None or isinstance(value, str):
        return {"text": value or ""}
    plain = json.loads(_json.dumps(value))
    if isinstance(plain, dict):
        return {"data": plain}
    return {"text": _json.dumps(plain).decode(), "data": {"result": plain}}


def _action(function: Callable[..., Any], signature: Signature) -> Handler:
    names = [p.name for p in signature.parameters]

    def call(p: Mapping[str, Any]) -> Any:
        # junctor passes the arguments as content. elizaOS passes the message there, and what
        # its model filled in as options.parameters.
        content, filled = p.get("content", {}), p.get("options", {}).get("parameters")
        given = {k: v for k, v in filled.items() if k in names} if isinstance(filled, Mapping) else {}
        given |= {k: v for k, v in content.items() if (k in names or signature.more_names is not None) and k not in given}
        args, kwargs = signature.bind([], given)
        return _then(function(*args, **kwargs), _reply)
    return call


def _route(function: Callable[..., Any], found: dict[str, str]) -> Handler:
    def call(p: Mapping[str, Any]) -> Any:
        query = {k: v if isinstance(v, list) else [v] for k, v in p.get("query", {}).items()}
        request = RouteRequest(p["method"], p["path"], found, query, p.get("headers", {}), p.get("body"))
        return _then(function(request), finish)

    def finish(r: Any) -> dict[str, Any]:
        if not isinstance(r, RouteResponse):
            r = RouteResponse(r)
        out: dict[str, Any] = {"status": r.status}
        if r.headers:
            out["headers"] = dict(r.headers)
        if r.body is not None:
            out["body"] = r.body
        return out
    return call


# ---- HTTP ------------------------------------------------------------------


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
        """The bearer token of the callers. If empty, every caller is accepted."""
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
                raise Error("unknown_capability", f"there is no module {known['moduleId'][:200]!r}")
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

    async def __call__(self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
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
        request = _Request(scope["method"], path, headers.get("authorization", ""), headers.get("if-none-match", ""))
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
                           self.headers.get("If-None-Match", ""))
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
            raise WireError(DECODE_FAILED, "the request needs a Content-Length", status=411, method=request.path, details={"code": "invalid_input"})
        lengths = self.headers.get_all("Content-Length") or ["0"]
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise WireError(DECODE_FAILED, "the Content-Length is malformed", status=400, method=request.path, details={"code": "invalid_input"})
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
