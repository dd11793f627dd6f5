"""JSON Schemas from type hints, and the strict decoding of JSON into typed values.

The types are: str, int, float, bool, None, bytes, Any, list, tuple, set, dict with keys of type
str, Optional and unions, Literal, enumerations, dataclasses and TypedDict. ``Annotated`` adds a
description (a text) or further keywords of JSON Schema (a dictionary)::

    limit: Annotated[int, "How many lines", {"minimum": 1}] = 10

Keywords from a dictionary are published and not checked here, because the server checks calls
against the schema.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from .errors import Error

__all__ = ["Signature", "decode", "schema_of"]

_MAX_DESCRIPTION = 1024


class _Type(NamedTuple):
    schema: dict[str, Any]
    decode: Callable[[Any, str], Any]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, (int, float)):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def _wrong(path: str, wanted: str, value: Any) -> Error:
    return _bad(f"{path} must be {wanted}, not {_kind(value)}")


def _bad(message: str) -> Error:
    return Error("invalid_input", message, reason="invalid_params")


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type. It raises TypeError for a type without one."""
    return _type_of(hint, (), "the type").schema


def decode(hint: Any, value: Any, path: str = "the value") -> Any:
    """Return a JSON value as a value of a type. It raises Error if the value does not fit."""
    return _type_of(hint, (), "the type").decode(value, path)


def _check(kind: type | tuple[type, ...], wanted: str) -> Callable[[Any, str], Any]:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
            raise _wrong(path, wanted, value)
        return value
    return check


def _integer(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise _wrong(path, "a whole number", value) if not isinstance(value, float) else _bad(f"{path} must be a whole number")
    return int(value)


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(path, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _bad(f"{path} is too large") from None


def _bytes(value: Any, path: str) -> bytes:
    if not isinstance(value, dict) or list(value) != ["$bytes"] or not isinstance(value["$bytes"], str):
        raise _bad(f'{path} must be {{"$bytes": "<base64>"}}')
    try:
        return base64.b64decode(value["$bytes"], validate=True)
    except (binascii.Error, ValueError):
        raise _bad(f"{path} is not base64") from None


_PLAIN: dict[Any, _Type] = {
    str: _Type({"type": "string"}, _check(str, "a text")),
    bool: _Type({"type": "boolean"}, _check(bool, "true or false")),
    int: _Type({"type": "integer"}, _integer),
    float: _Type({"type": "number"}, _number),
    type(None): _Type({"type": "null"}, _check(type(None), "null")),
    bytes: _Type({"type": "object", "properties": {"$bytes": {"type": "string", "contentEncoding": "base64"}}, "required": ["$bytes"],
                  "additionalProperties": False}, _bytes),
    Any: _Type({}, lambda value, path: value),
    object: _Type({}, lambda value, path: value),
    list: _Type({"type": "array"}, _check(list, "a list")),
    dict: _Type({"type": "object"}, _check(dict, "an object")),
}
_PLAIN[None] = _PLAIN[type(None)]

_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset, collections.abc.Sequence: list, collections.abc.Iterable: list,
    collections.abc.Collection: list, collections.abc.Set: set, collections.abc.MutableSequence: list,
}
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _type_of(hint: Any, outer: tuple[Any, ...], path: str) -> _Type:
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:
        pass  # a hint with a part that cannot be hashed
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner = _type_of(args[0], outer, path)
        schema = dict(inner.schema)
        for note in args[1:]:
            if isinstance(note, str):
                schema["description"] = note[:_MAX_DESCRIPTION]
            elif isinstance(note, Mapping):
                schema.update(note)
        return _Type(schema, inner.decode)
    if origin in (typing.Required, typing.NotRequired, typing.Final, getattr(typing, "ReadOnly", typing.Final)):
        return _type_of(args[0], outer, path)
    if origin in (typing.Union, types.UnionType):
        return _union([_type_of(a, outer, path) for a in args])
    if origin is Literal:
        return _literal(list(args))
    if origin in (tuple, set, frozenset) or origin in _LISTS or hint in _LISTS:
        return _list(hint if origin is None else origin, args, outer, path)
    if origin in _MAPS or hint in _MAPS:
        if args and args[0] is not str:
            raise TypeError(f"{path} has keys that are not texts; JSON has only names of type str")
        item = _type_of(args[1] if args else Any, outer, path)
        schema = {"type": "object"}
        if item.schema:
            schema["additionalProperties"] = item.schema
        return _Type(schema, lambda value, at: {k: item.decode(v, f"{at}.{k}") for k, v in _PLAIN[dict].decode(value, at).items()})
    if isinstance(hint, type):
        if hint in outer:
            raise TypeError(f"{path} contains the type {hint.__name__} within itself; use dict for the inner value")
        if issubclass(hint, enum.Enum):
            values = {m.value: m for m in hint}
            inner = _literal(list(values))
            return _Type(inner.schema, lambda value, at: values[inner.decode(value, at)])
        if dataclasses.is_dataclass(hint):
            return _dataclass(hint, (*outer, hint), path)
        if typing.is_typeddict(hint):
            return _typed_dict(hint, (*outer, hint), path)
    name = getattr(hint, "__name__", None) or repr(hint)
    raise TypeError(f"{path} has the type {name}, which has no JSON form; use a dataclass, a TypedDict or a plain type")


def _union(members: list[_Type]) -> _Type:
    kinds = [m.schema.get("type") for m in members]
    simple = all(list(m.schema) == ["type"] and isinstance(m.schema["type"], str) for m in members)
    schema = {"type": kinds} if simple else {"anyOf": [m.schema for m in members]}

    def decode(value: Any, path: str) -> Any:
        fault: Error | None = None
        for m in members:
            try:
                return m.decode(value, path)
            except Error as err:
                # The most helpful fault is that of a member whose JSON type fits.
                if fault is None or m.schema.get("type") == _json_type(value):
                    fault = err
        assert fault is not None
        raise fault
    return _Type(schema, decode)


def _json_type(value: Any) -> str:
    return {"null": "null", "a boolean": "boolean", "a text": "string", "a number": "number", "a list": "array"}.get(_kind(value), "object")


def _literal(values: list[Any]) -> _Type:
    for v in values:
        if v is not None and not isinstance(v, (str, int, float, bool)):
            raise TypeError(f"a value of type {type(v).__name__} has no JSON form")
    schema: dict[str, Any] = {"enum": values}
    if all(isinstance(v, str) for v in values):
        schema = {"type": "string", "enum": values}

    def decode(value: Any, path: str) -> Any:
        for v in values:
            if v == value and isinstance(v, bool) == isinstance(value, bool):
                return v
        raise _bad(f"{path} must be one of {', '.join(map(repr, values))}"[:500])
    return _Type(schema, decode)


def _list(origin: Any, args: tuple[Any, ...], outer: tuple[Any, ...], path: str) -> _Type:
    make = _LISTS[origin]
    if origin is tuple and args and args[-1:] != (Ellipsis,):
        items = [_type_of(a, outer, path) for a in args]

        def fixed(value: Any, at: str) -> Any:
            if not isinstance(value, list) or len(value) != len(items):
                raise _bad(f"{at} must be a list of {len(items)} items")
            return tuple(t.decode(v, f"{at}[{i}]") for i, (t, v) in enumerate(zip(items, value, strict=True)))
        return _Type({"type": "array", "prefixItems": [t.schema for t in items], "minItems": len(items), "maxItems": len(items)}, fixed)
    item = _type_of(args[0] if args else Any, outer, path)
    schema: dict[str, Any] = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if origin in (set, frozenset, collections.abc.Set):
        schema["uniqueItems"] = True

    def decode(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(at, "a list", value)
        return make([item.decode(v, f"{at}[{i}]") for i, v in enumerate(value)])
    return _Type(schema, decode)


def _object(members: Mapping[str, _Type], required: Sequence[str], make: Callable[[dict[str, Any]], Any]) -> _Type:
    schema: dict[str, Any] = {"type": "object", "properties": {n: t.schema for n, t in members.items()}, "additionalProperties": False}
    if required:
        schema["required"] = list(required)

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        out = {}
        for name, v in value.items():
            if name not in members:
                raise _bad(f"{path} has no member {name[:80]!r}")
            out[name] = members[name].decode(v, f"{path}.{name}")
        for name in required:
            if name not in out:
                raise _bad(f"{path}.{name} is missing")
        return make(out)
    return _Type(schema, decode)


def _dataclass(cls: type, outer: tuple[Any, ...], path: str) -> _Type:
    hints = _hints(cls)
    members, required = {}, []
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        t = _type_of(hints[f.name], outer, f"{path}.{f.name}")
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            required.append(f.name)
        else:
            t = _with_default(t, f.default)
        members[f.name] = t
    return _object(members, required, lambda found: cls(**found))


def _typed_dict(cls: Any, outer: tuple[Any, ...], path: str) -> _Type:
    hints = _hints(cls)
    members = {n: _type_of(h, outer, f"{path}.{n}") for n, h in hints.items()}
    return _object(members, [n for n in members if n in cls.__required_keys__], lambda found: found)


def _with_default(t: _Type, value: Any) -> _Type:
    if value is None or isinstance(value, (str, int, float, bool)) and not isinstance(value, enum.Enum):
        if "default" not in t.schema and value is not None:
            return _Type({**t.schema, "default": value}, t.decode)
    return t


def _hints(what: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(what, include_extras=True)
    except NameError as err:
        raise TypeError(f"a type hint of {getattr(what, '__qualname__', what)} cannot be found: {err}; define its types at the top of the "
                        "module") from None


def description_of(what: Any) -> str:
    """Return the first paragraph of a docstring as one line."""
    text = inspect.getdoc(what) if getattr(what, "__doc__", None) else ""
    return " ".join((text or "").split("\n\n", 1)[0].split())[:_MAX_DESCRIPTION]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    by_place: bool
    by_name: bool
    decode: Callable[[Any, str], Any] = dataclasses.field(repr=False)

    @property
    def description(self) -> str:
        """The description of the parameter, or an empty text."""
        return str(self.schema.get("description", ""))


class Signature:
    """The parameters of a function, from its type hints.

    ``inject`` has types whose parameters do not come from the caller. It raises TypeError for a
    parameter whose type has no JSON form.
    """

    def __init__(self, function: Callable[..., Any], inject: Sequence[type] = ()) -> None:
        target = function if inspect.isroutine(function) or inspect.isclass(function) else function.__call__  # type: ignore[operator]
        name = getattr(function, "__name__", type(function).__name__)
        hints = _hints(target)
        self.parameters: list[Parameter] = []
        self.injected: dict[str, type] = {}
        self.more_places: Parameter | None = None
        self.more_names: Parameter | None = None
        for p in inspect.signature(function).parameters.values():
            hint = hints.get(p.name, Any)
            if hint in inject:
                self.injected[p.name] = hint
                continue
            t = _type_of(hint, (), f"the parameter {p.name} of {name}")
            required = p.default is inspect.Parameter.empty
            if not required:
                t = _with_default(t, p.default)
            found = Parameter(p.name, t.schema, required, p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD),
                              p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY), t.decode)
            if p.kind is p.VAR_POSITIONAL:
                self.more_places = found
            elif p.kind is p.VAR_KEYWORD:
                self.more_names = found
            else:
                self.parameters.append(found)
        self.returns = hints.get("return", Any)
        self._by_name = {p.name: p for p in self.parameters if p.by_name}

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters, as an object."""
        out: dict[str, Any] = {"type": "object", "properties": {p.name: dict(p.schema) for p in self.parameters}}
        if required := [p.name for p in self.parameters if p.required]:
            out["required"] = required
        if self.more_names is None:
            out["additionalProperties"] = False
        return out

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the result, or None if the return type has no schema."""
        try:
            return schema_of(self.returns) or None
        except TypeError:
            return None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call. It raises Error if they do not fit."""
        places = [p for p in self.parameters if p.by_place]
        if len(args) > len(places) and self.more_places is None:
            raise _bad(f"at most {len(places)} arguments are taken by place, and there are {len(args)}")
        out_args, out_kwargs, given = [], {}, set()
        for i, value in enumerate(args):
            p = places[i] if i < len(places) else self.more_places
            assert p is not None
            out_args.append(p.decode(value, f"the argument {p.name}"))
            given.add(p.name)
        for name, value in kwargs.items():
            p = self._by_name.get(name) or self.more_names
            if p is None:
                raise _bad(f"the function has no argument {name[:80]!r}; it takes {', '.join(self._by_name) or 'none'}"[:500])
            if name in given:
                raise _bad(f"the argument {name} is given by place and by name")
            out_kwargs[name] = p.decode(value, f"the argument {name[:80]}")
            given.add(name)
        for p in self.parameters:
            if p.required and p.name not in given:
                raise _bad(f"the argument {p.name} is missing")
        return out_args, out_kwargs
