"""The capability-router protocol: its methods, and the decoding of parameters and results.

Unknown members are dropped, and everything else must have the type that the protocol
requires. ``null`` is not the same as an absent member.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import CODES, DECODE_FAILED, REQUEST_FAILED, UNAVAILABLE, Error

PATH_AVAILABILITY = "/v1/capabilities"
PATH_INVOKE = "/v1/capabilities/invoke"
PATH_ASSETS = "/v1/capabilities/assets/"
HEADER_INTEGRITY = "X-Eliza-Asset-Integrity"

MAX_BODY = 4 << 20
MAX_MANIFEST = 4 << 20
MAX_MODULES = 256
MAX_ITEMS = 1024
MAX_MANIFEST_DEPTH = 64
MAX_DEPTH = 512

LIFECYCLE_HOOKS = ("init", "dispose", "applyConfig")
BRIDGE_HOOKS = ("prepareLaunch", "resolveViewerAuthMessage", "ensureRuntimeReady", "collectLaunchDiagnostics",
                "resolveLaunchSession", "refreshRunSession", "stopRun", "handleAppRoutes")
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class WireError(Exception):
    """A failure in the form of the protocol. ``method`` is the place, ``status`` the HTTP status."""

    def __init__(self, code: str, message: str, *, method: str = "", capability: str = "", details: Any = None, status: int = 200) -> None:
        super().__init__(message)
        self.code, self.message, self.method = code, message, method
        self.capability, self.details, self.status = capability, details, status

    def envelope(self) -> dict[str, Any]:
        """Return the body of the response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        for name in ("capability", "method", "details"):
            if value := getattr(self, name):
                error[name] = value
        return {"ok": False, "error": error}


def wire_error(err: Error, method: str) -> WireError:
    """Return an error of this package in the form of the protocol."""
    _, code = CODES.get(err.code, (500, REQUEST_FAILED))
    details: dict[str, Any] = {**err.details, "code": err.code if err.code in CODES else "internal"}
    if err.reason:
        details["reason"] = err.reason
    if err.hint:
        details["hint"] = err.hint
    if err.retry_after:
        details["retry_after_ms"] = int(err.retry_after * 1000)
    family = method.partition(".")[0] if code != DECODE_FAILED and method in METHODS else ""
    return WireError(code, err.message or err.code, method=method, capability=family, details=details)


# ---- Values ----------------------------------------------------------------


class Field(NamedTuple):
    """One known member of an object."""

    name: str
    kind: str
    optional: bool = False
    null: bool = False  # null is allowed
    own: bool = False  # a wrong type is reported at <path>.<name>
    filled: bool = False  # a list must have an item
    unique: bool = False
    at: str = ""
    check: Callable[[Any], str] | None = None  # returns the fault, or an empty text
    rewrite: Callable[[str], str] | None = None
    sub: Shape | None = None


@dataclass(eq=False)
class Shape:
    """The known members of one object, in the order in which they are checked."""

    fields: tuple[Field, ...] = ()
    module: bool = False


_MISSING = object()


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    return "a number"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fail(at: str, message: str) -> WireError:
    return WireError(DECODE_FAILED, f"{at}: {message}", method=at)


_WANTED = {
    "text": "a string", "number": "a number", "boolean": "a boolean", "object": "an object", "record": "an object", "list": "an array",
    "texts": "an array", "objects": "an array", "records": "an array", "textMap": "an object", "scalarMap": "an object",
    "queryMap": "an object", "headerMap": "an object", "recordMap": "an object",
}


class Decoder:
    """Checks values against shapes."""

    def __init__(self, max_items: int = 0, max_modules: int = 0) -> None:
        self.max_items, self.max_modules = max_items, max_modules

    def record(self, shape: Shape, value: Any, at: str) -> dict[str, Any]:
        """Return the known members of an object."""
        if not isinstance(value, Mapping):
            raise _fail(at, f"must be an object, not {_kind_of(value)}")
        out = {}
        for f in shape.fields:
            got = self._field(f, value.get(f.name, _MISSING), at)
            if got is not _MISSING:
                out[f.name] = got
        return out

    def _field(self, f: Field, value: Any, at: str) -> Any:
        where = f.at or (f"{at}.{f.name}" if f.own or f.kind in ("record", "recordMap") else at)
        if value is _MISSING:
            if f.optional:
                return _MISSING
            raise _fail(where, f'"{f.name}" is missing')
        if f.kind == "any" or f.null and value is None:
            return value
        wanted = _WANTED[f.kind]
        if _kind_of(value) != wanted:
            raise _fail(where, f'"{f.name}" must be {wanted}, not {_kind_of(value)}')
        match f.kind:
            case "text" | "number":
                if f.kind == "number" and not math.isfinite(value):
                    raise _fail(where, f'"{f.name}" is not a finite number')
                if f.check and (fault := f.check(value)):
                    raise _fail(where, f'"{f.name}" {fault}')
                return f.rewrite(value) if f.rewrite else value
            case "record":
                assert f.sub is not None
                return self.record(f.sub, value, where)
            case "texts" | "objects" | "records":
                return self._array(f, value, at, where)
            case "textMap" | "scalarMap" | "queryMap" | "headerMap" | "recordMap":
                return self._members(f, value, where)
        return value

    def _array(self, f: Field, value: Any, at: str, where: str) -> list[Any]:
        if f.kind == "records":
            where = f"{at}.{f.name}"
        limit = self.max_modules if f.sub is not None and f.sub.module else self.max_items
        if limit and len(value) > limit:
            raise _fail(where, f'"{f.name}" has more than {limit} items')
        if f.filled and not value:
            raise _fail(where, f'"{f.name}" must not be empty')
        out: list[Any] = []
        for item in value:
            if f.kind == "records":
                assert f.sub is not None
                item = self.record(f.sub, item, where)
            elif f.kind == "objects":
                if not isinstance(item, Mapping):
                    raise _fail(where, f'"{f.name}" must hold objects, not {_kind_of(item)}')
            else:
                if not isinstance(item, str):
                    raise _fail(where, f'"{f.name}" must hold strings, not {_kind_of(item)}')
                if f.check and (fault := f.check(item)):
                    raise _fail(where, f'"{f.name}" has an item that {fault}: {item!r}')
                if f.unique and item in out:
                    raise _fail(where, f'"{f.name}" names {item!r} twice')
            out.append(item)
        return out

    def _members(self, f: Field, value: Any, at: str) -> dict[str, Any]:
        out = {}
        for name, v in value.items():
            match f.kind:
                case "recordMap":
                    assert f.sub is not None
                    v = self.record(f.sub, v, f"{at}.{name}")
                case "textMap" | "headerMap":
                    if not isinstance(v, str):
                        raise _fail(at, f'"{f.name}" must hold strings, not {_kind_of(v)}')
                    if f.kind == "headerMap" and (fault := check_header(name, v)):
                        raise _fail(at, f'"{f.name}" {fault}')
                case "scalarMap":
                    if isinstance(v, (Mapping, list, tuple)) or _number(v) and not math.isfinite(v):
                        raise _fail(at, f'"{f.name}" must hold strings, finite numbers, booleans or null, not {_kind_of(v)}')
                case "queryMap":
                    self._query(f, name, v, at)
            out[name] = v
        return out

    @staticmethod
    def _query(f: Field, name: str, value: Any, at: str) -> None:
        if not name or not _single_line(name):
            raise _fail(at, f'"{f.name}" has a name that is empty or holds CR, LF or NUL')
        for v in value if isinstance(value, list) else [value]:
            if not isinstance(v, str):
                raise _fail(at, f'"{f.name}" must hold strings or arrays of strings, not {_kind_of(v)}')
            if not _single_line(v):
                raise _fail(at, f'"{f.name}" holds a value with CR, LF or NUL')


# ---- Texts -----------------------------------------------------------------

_BLANKS = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_MODULE_ID = re.compile(r"[A-Za-z0-9._-]+")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_METHOD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_RESERVED = frozenset((
    "callRemote", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__"))
_PATH_UNSAFE = "holds a character or a segment that is not allowed in a path"
_PATH_FORM = "must be a path that starts with one '/' and has no empty segment"
_ASSET_FORM = "must be a relative asset path without a scheme and without empty segments"
_URL = "must be an absolute http or https URL without credentials"


def _single_line(s: str) -> bool:
    return not any(c in s for c in "\r\n\0")


def _control(s: str) -> bool:
    return any(c < " " or c == "\x7f" for c in s)


def _blank(s: str) -> bool:
    return not s.strip(_BLANKS)


def _not_blank(s: str) -> str:
    return "must not be blank" if _blank(s) else ""


def _one_line(s: str) -> str:
    return "" if not _blank(s) and _single_line(s) else "must not be blank and must not hold CR, LF or NUL"


def _among(*values: str) -> Callable[[str], str]:
    return lambda s: "" if s in values else "is not one of the values of the protocol"


def _status(n: float) -> str:
    return "" if n == int(n) and 100 <= n <= 599 else "must be an integer from 100 to 599"


def _base64(s: str) -> str:
    return "" if len(s) % 4 == 0 and _BASE64.fullmatch(s) else "must be padded base64 of the standard alphabet without blanks"


def _service_method(s: str) -> str:
    if not _METHOD.fullmatch(s):
        return "must be an identifier of letters, digits, '_' and '$'"
    return "is a name that every object has already" if s in _RESERVED else ""


def _sha256(s: str) -> str:
    return "" if re.fullmatch(r"[0-9a-fA-F]{64}", s) else "must be 64 hexadecimal digits"


def check_module_id(s: str) -> str:
    """Return the fault of a module id, or an empty text."""
    if s in (".", "..") or not _MODULE_ID.fullmatch(s):
        return "must be of letters, digits, '.', '_' and '-', and neither \".\" nor \"..\""
    return ""


def check_header(name: str, value: str) -> str:
    """Return the fault of a header, or an empty text."""
    if not _TOKEN.fullmatch(name):
        return "holds a header name that is not an HTTP token"
    return "" if _single_line(value) else "holds a header value with CR, LF or NUL"


def _segments(rest: str) -> str:
    if any(c in rest for c in "?#\\") or _control(rest):
        return _PATH_UNSAFE
    for segment in rest.split("/"):
        if not segment:
            return _PATH_FORM
        decoded = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), segment)
        if segment in (".", "..") or decoded in (".", "..") or "/" in decoded or "\\" in decoded or _control(decoded):
            return _PATH_UNSAFE
    return ""


def check_local_path(p: str) -> str:
    """Return the fault of a local path, or an empty text."""
    if not p.startswith("/") or p.startswith("//"):
        return _PATH_FORM
    return "" if p == "/" else _segments(p[1:])


def check_asset_path(p: str) -> str:
    """Return the fault of an asset path, or an empty text."""
    t = p.strip(_BLANKS)
    if not t or t.startswith("//") or _SCHEME.match(t):
        return _ASSET_FORM
    if _control(p):
        return _PATH_UNSAFE
    return _segments(t.removeprefix("/"))


def clean_asset_path(p: str) -> str:
    """Return the form of an asset path with one leading slash. It raises ValueError for a wrong one."""
    if fault := check_asset_path(p):
        raise ValueError(fault)
    return "/" + p.strip(_BLANKS).removeprefix("/")


def check_browser_url(s: str) -> str:
    """Return the fault of a URL for browsers, or an empty text."""
    s = s.strip("".join(map(chr, range(33))))
    s = s.replace("\t", "").replace("\n", "").replace("\r", "")
    scheme, colon, rest = s.partition(":")
    if not colon or scheme.lower() not in ("http", "https"):
        return _URL
    authority = re.split(r"[/\\?#]", rest.lstrip("/\\"), maxsplit=1)[0]
    return "" if _authority(authority) else _URL


def _authority(a: str) -> bool:
    if any(c in '@<>^|% "`{}' for c in a) or _control(a):
        return False
    if a.startswith("["):
        address, bracket, port = a[1:].partition("]")
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            return False
        if not bracket or port and not port.startswith(":"):
            return False
        port = port.removeprefix(":")
    else:
        host, _, port = a.partition(":")
        if not host or "[" in host or "]" in host:
            return False
    return not port or port.isascii() and port.isdigit() and int(port[:12]) <= 65535


def _bundle_url(s: str) -> str:
    if s.startswith("/"):
        return check_local_path(s)
    return "must be a local path or an absolute http or https URL without credentials" if check_browser_url(s) else ""


# ---- Shapes ----------------------------------------------------------------


def _need(name: str, kind: str, **more: Any) -> Field:
    return Field(name, kind, **more)


def _opt(name: str, kind: str, **more: Any) -> Field:
    return Field(name, kind, optional=True, **more)


def _opts(kind: str, *names: str) -> tuple[Field, ...]:
    return tuple(_opt(n, kind) for n in names)


def _named(*names: str) -> tuple[Field, ...]:
    return tuple(_need(n, "text", check=_not_blank) for n in names)


def _shape(*parts: Field | tuple[Field, ...], module: bool = False) -> Shape:
    fields: list[Field] = []
    for p in parts:
        if isinstance(p, Field):
            fields.append(p)
        else:
            fields.extend(p)
    return Shape(tuple(fields), module)


def _records(name: str, *parts: Field | tuple[Field, ...]) -> Field:
    return _opt(name, "records", sub=_shape(*parts))


def _component_schema() -> Shape:
    s = Shape()
    s.fields = (*_named("type"), _opt("properties", "recordMap", sub=s), _opt("items", "record", sub=s),
                *_opts("texts", "required", "enumValues"), _opt("description", "text"))
    return s


def _app() -> Shape:
    viewer = _shape(_need("url", "text", check=check_browser_url), _opt("embedParams", "textMap"), _opt("postMessageAuth", "boolean"),
                    _opt("sandbox", "text"))
    session = _shape(_need("mode", "text", check=_among("viewer", "spectate-and-steer", "external")),
                     _opt("features", "texts", check=_among("commands", "telemetry", "pause", "resume", "suggestions")))
    tab = _shape(_named("id", "label"), _need("path", "text", check=check_local_path), _opt("icon", "text"), _opt("order", "number"),
                 _opt("developerOnly", "boolean"), _opts("text", "group", "componentExport", "viewKind"), _opt("surface", "object"))
    return _shape(
        _opt("displayName", "text", check=_not_blank), _opts("text", "category", "launchType", "runtimePlugin", "bridgeExport"),
        _opt("launchUrl", "text", check=check_browser_url, null=True), _opt("icon", "text", null=True), _opt("capabilities", "texts"),
        _opt("minPlayers", "number", null=True), _opt("maxPlayers", "number", null=True), _opt("viewer", "record", sub=viewer),
        _opt("session", "record", sub=session), _opt("uiExtension", "record", sub=_shape(_opt("detailPanelId", "text"))),
        _opts("boolean", "developerOnly", "visibleInAppStore"), _opt("navTabs", "records", sub=tab), _opt("viewKind", "text"))


_SLOTS = ("chat-sidebar", "chat-inline", "wallet", "browser", "heartbeats", "character", "settings", "nav-page", "automations")


def _hooks(name: str, hooks: tuple[str, ...]) -> Field:
    return _opt(name, "record", sub=_shape(_need("hooks", "texts", check=_among(*hooks), filled=True)))


MODULE = _shape(
    _opts("text", "capabilityEndpointId", "version", "description"), _opt("priority", "number"), _opt("contexts", "texts"),
    _opt("config", "scalarMap"), _opt("schema", "object"),
    _records("actions", _named("name", "description"), _opt("descriptionCompressed", "text"), _opt("similes", "texts"),
        _opt("parameters", "any")),
    _records("providers", _named("name"), _opts("text", "description", "descriptionCompressed"), _opts("boolean", "dynamic", "private")),
    _records("evaluators", _named("name", "description", "prompt"), _need("schema", "object"), _opts("texts", "similes", "providers"),
             _opt("priority", "number"), _opt("modelType", "text"), _opts("boolean", "hasPrepare", "hasProcessor")),
    _records("responseHandlerEvaluators", _named("name"), _opt("description", "text"), _opt("priority", "number")),
    _records("responseHandlerFieldEvaluators", _named("name", "description"), _need("schema", "object", own=True),
             _opt("priority", "number"),
             _opts("boolean", "hasParse", "hasHandle")),
    _records("events", _named("eventName")),
    _records("models", _named("modelType"), _opt("priority", "number")),
    _records("services", _named("serviceType"), _opt("capabilityDescription", "text"), _opt("config", "object"),
             _opt("methods", "texts", check=_service_method, unique=True)),
    _records("componentTypes", _named("name"), _need("schema", "record", sub=_component_schema())),
    _records("widgets", _named("id"), _opt("pluginId", "text", check=_not_blank), _need("slot", "text", check=_among(*_SLOTS)),
        _named("label"),
             _opt("icon", "text"), _opt("order", "number"), _opt("defaultEnabled", "boolean"), _opt("navGroup", "text"),
             _opt("developerOnly", "boolean"), _opts("text", "componentExport", "viewKind")),
    _opt("app", "record", sub=_app()), _hooks("appBridge", BRIDGE_HOOKS), _hooks("lifecycle", LIFECYCLE_HOOKS),
    _records("routes", _need("method", "text", check=_among(*VERBS, "STATIC")), _need("path", "text", check=check_local_path),
             _opt("name", "text"), _opt("public", "boolean"), _opts("text", "description", "publicReason", "publicWrite")),
    _records("views", _named("id", "label"), _opt("viewType", "text", check=_among("gui", "tui", "xr")),
             _opt("bundlePath", "text", check=check_asset_path), _opt("bundleUrl", "text", check=_bundle_url),
             _opt("framePath", "text", check=check_asset_path), _opt("frameUrl", "text", check=_bundle_url),
             _opts("text", "contentType", "integrity", "viewKind"), _opt("surface", "object")),
    _opt("provenance", "record", sub=_shape(
        _named("issuer", "subject"), _need("digestSha256", "text", check=_sha256, rewrite=str.lower),
        _named("signatureAlgorithm", "signature"))),
    _opt("metadata", "object"), _need("id", "text", check=check_module_id), _named("name"), module=True)


class Method(NamedTuple):
    """The parameters and the result of a method, and the parameter that names the item."""

    surface: str
    target: str
    params: Shape
    result: Shape


def _plugin(*parts: Field | tuple[Field, ...]) -> Shape:
    return _shape(_need("moduleId", "text", check=check_module_id), _opt("endpointId", "text", check=_one_line, at="capability.endpoint"),
                  _opt("traceSessionId", "any"), *parts)


def _methods() -> dict[str, Method]:
    objects = _opts("object", "message", "state", "options")
    prepared, context = _opt("prepared", "any"), _opt("context", "object")
    should_run = _shape(_need("shouldRun", "boolean"))
    effect = _shape(_opt("patch", "object"), _opt("preempt", "record", sub=_shape(
        _need("mode", "text", check=_among("ack-and-stop", "ignore", "direct-reply")), _need("reason", "text"))), _opt("debug", "texts"))
    result = _shape(_opt("result", "any"))
    out = {
        "modules.list": Method("module", "", _shape(_opts("any", "endpointId", "traceSessionId")),
                               _shape(_need("modules", "records", sub=MODULE))),
        "action.invoke": Method("action", "action", _plugin(_named("action"), _opts("object", "content", "options")),
                                _shape(_opt("text", "text"), _opt("actions", "texts"), _opts("object", "values", "data"))),
        "provider.get": Method("provider", "provider", _plugin(_named("provider"), _opt("state", "object")),
                               _shape(_opt("text", "text"), _opts("object", "values", "data"))),
        "route.call": Method("route", "path", _plugin(_need("method", "text", check=_among(*VERBS)),
                                                      _need("path", "text", check=check_local_path), _opt("body", "any"),
                                                      _opt("query", "queryMap"), _opt("headers", "headerMap")),
                             _shape(_need("status", "number", check=_status), _opt("headers", "headerMap"), _opt("body", "any"))),
        "asset.get": Method("view", "path", _plugin(_need("path", "text", check=check_asset_path)),
                            _shape(_need("path", "text", check=check_asset_path), _need("contentType", "text", check=_one_line),
                                   _need("bodyBase64", "text", check=_base64), _opt("integrity", "text", check=_one_line))),
        "lifecycle.call": Method("lifecycle", "hook", _plugin(_need("hook", "text", check=_among(*LIFECYCLE_HOOKS)),
                                                              _opt("config", "textMap"), context), _shape(_need("ok", "boolean"))),
        "event.handle": Method("event", "eventName", _plugin(_named("eventName"), _opt("payload", "object")),
                               _shape(_need("handled", "boolean"))),
        "model.invoke": Method("model", "modelType", _plugin(_named("modelType"), _opt("params", "any")), _shape(_need("result", "any"))),
        "service.call": Method("service", "serviceType", _plugin(_named("serviceType"), _need("method", "text", check=_service_method),
                                                                 _opt("args", "list")), result),
        "appBridge.call": Method("appBridge", "hook", _plugin(_need("hook", "text", check=_among(*BRIDGE_HOOKS)), context), result),
    }
    name = _named("evaluator")
    for phase, params, answer in (
        ("shouldRun", _plugin(name, objects), should_run),
        ("prepare", _plugin(name, objects), _shape(prepared)),
        ("prompt", _plugin(name, objects, prepared), _shape(_need("prompt", "text"))),
        ("process", _plugin(name, objects, prepared, _opt("output", "any")), _shape(_opt("result", "object"))),
    ):
        out["evaluator." + phase] = Method("evaluator", "evaluator", params, answer)
    for phase, answer in (("shouldRun", should_run), ("evaluate", _shape(_opt("patch", "object")))):
        out["responseHandlerEvaluator." + phase] = Method("responseHandlerEvaluator", "evaluator", _plugin(name, context), answer)
    name, value = _named("field"), _opt("value", "any")
    for phase, params, answer in (
        ("shouldRun", _plugin(name, context), should_run),
        ("parse", _plugin(name, context, value), _shape(value, _opt("softFail", "boolean"))),
        ("handle", _plugin(name, context, value, _opt("parsed", "object")), _shape(_opt("effect", "record", sub=effect))),
    ):
        out["responseHandlerFieldEvaluator." + phase] = Method("responseHandlerFieldEvaluator", "field", params, answer)
    return {"plugin." + n: m for n, m in out.items()}


#: The methods that a module can serve.
METHODS = _methods()

#: The methods of the other families, which an endpoint of this package does not offer.
OTHER_METHODS = frozenset(("fs.list", "fs.readText", "fs.writeText", "pty.command.run", "git.status", "git.diff", "git.command.run",
                           "model.status"))


def decode_params(method: str, params: Any) -> dict[str, Any]:
    """Return the known parameters of a call. It raises WireError if they do not fit."""
    if method not in METHODS:
        raise WireError(UNAVAILABLE, f'the protocol has no method "{method[:200]}"', method=method[:200],
            details={"code": "unknown_capability"})
    try:
        return Decoder().record(METHODS[method].params, params if isinstance(params, Mapping) else {}, method)
    except WireError as err:
        err.details = {"code": "invalid_input"}
        raise


def decode_result(method: str, result: Any) -> dict[str, Any]:
    """Return the known members of a result. It raises WireError if it does not fit."""
    limits = Decoder(MAX_ITEMS, MAX_MODULES) if method == "plugin.modules.list" else Decoder()
    try:
        return limits.record(METHODS[method].result, result, method)
    except WireError as err:
        err.details = {"code": "failed", "reason": "decode_failed"}
        raise


def decode_module(manifest: Any) -> dict[str, Any]:
    """Return the known members of a manifest. It raises WireError if it is not what routers accept."""
    return Decoder(MAX_ITEMS, MAX_MODULES).record(MODULE, manifest, "plugin.modules.list.modules")


def match_route(declared: str, path: str) -> dict[str, str] | None:
    """Return the parameters of a path that matches a declared one, or None.

    ``:name`` matches one segment, a last ``:name*`` all that follow.
    """
    want, have = declared.split("/"), path.split("/")
    out: dict[str, str] = {}
    for i, w in enumerate(want):
        if w.startswith(":") and w.endswith("*"):
            out[w[1:-1]] = _unescape("/".join(have[i:]))
            return out
        if i >= len(have):
            return None
        if w.startswith(":"):
            if not have[i]:
                return None
            out[w[1:]] = _unescape(have[i])
        elif w != have[i]:
            return None
    return out if len(want) == len(have) else None


def _unescape(s: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", s):
        return s
    try:
        return _unquote(s)
    except ValueError:
        return s


def _unquote(s: str) -> str:
    """Decode percent escapes strictly."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", s):
        raise ValueError("has a malformed percent escape")
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), s.encode()).decode("utf-8")


def parse_asset_url(escaped: str) -> tuple[str, str]:
    """Split the rest of an asset URL into the module and the path. It raises WireError for a wrong one."""

    def wrong(message: str) -> WireError:
        return WireError(DECODE_FAILED, "the asset URL " + message, method="plugin.asset.get", status=400,
            details={"code": "invalid_input"})

    first, slash, rest = escaped.partition("/")
    if not slash or not rest:
        raise wrong("needs a module id and an asset path")
    try:
        module, parts = _unquote(first), [_unquote(s) for s in rest.split("/")]
    except ValueError:
        raise wrong("has a malformed percent escape") from None
    if check_module_id(module):
        raise wrong("does not name a module")
    if any(not s or s in (".", "..") or "/" in s or "\\" in s or _control(s) for s in parts):
        raise wrong("has an unsafe segment")
    path = "/" + "/".join(parts)
    if fault := check_asset_path(path):
        raise wrong(fault)
    return module, path


def integrity(body: bytes) -> str:
    """Return the integrity value of a file."""
    return "sha256-" + base64.b64encode(hashlib.sha256(body).digest()).decode()
