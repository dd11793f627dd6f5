"""JSON as the protocols require it: UTF-8, unique member names, bounded nesting."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 64

# A string that does not end goes to the end of the input, so that it is scanned once.
_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*(?:"|\Z)', re.DOTALL)


def loads(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Decode one JSON value.

    It raises ValueError for invalid UTF-8, repeated member names, numbers that are not finite
    and values that are nested too deeply.
    """
    if data.count(b"{") + data.count(b"[") > max_depth:
        _check_depth(data, max_depth)
    return _DECODER.decode(data.decode("utf-8"))


def _check_depth(data: bytes, max_depth: int) -> None:
    depth = 0
    for match in re.finditer(rb"[\[\]{}]", _STRING.sub(b'""', data)):
        depth += 1 if match[0] in b"[{" else -1
        if depth > max_depth:
            raise ValueError(f"the JSON is more than {max_depth} levels deep")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the member {name[:80]!r} is given twice")
            seen.add(name)
    return out


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large for a double")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)


def dumps(value: Any) -> bytes:
    """Encode a value as compact JSON. Dataclasses and enumerations are encoded by their content.

    It raises ValueError or TypeError for a value that has no JSON form.
    """
    return _ENCODER.encode(value).encode("utf-8")


def _default(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default)
