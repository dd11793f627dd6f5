"""Modules: what an endpoint offers. Functions become items by decorators."""

from __future__ import annotations

import base64
import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from . import _json, _router
from ._router import WireError
from .errors import Error
from .schema import Signature, description_of

__all__ = [
    "ActionResult", "Evaluator", "EvaluatorCall", "FieldCall", "FieldEffect", "FieldEvaluator", "Module", "ProviderResult",
    "ResponseEvaluator", "RouteRequest", "RouteResponse",
]

_F = TypeVar("_F", bound=Callable[..., Any])
Handler = Callable[..., Any]
ViewKind = Literal["release", "system", "developer", "preview"]

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

    def _check_unsigned(self) -> None:
        if "provenance" in self._manifest:
            raise ValueError(f"the module {self.id!r} is signed already; declare everything before sign")

    def _add(self, part: str, key: str, item: Mapping[str, Any]) -> None:
        """Add an item to a list of the manifest, and check it."""
        self._check_unsigned()
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
            self._check_unsigned()
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
            self._items["lifecycle.call", hook] = lambda p: _then(
                function(p.get("config", {}), p.get("context", {})), lambda r: {"ok": True})
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
        self._check_unsigned()
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
        file = {"path": clean, "contentType": content_type, "bodyBase64": base64.b64encode(body).decode(),
            "integrity": _router.integrity(body)}
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
        self._check_unsigned()
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
        """Return the function of the parameters that a call reaches. It raises Error if none matches."""
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
