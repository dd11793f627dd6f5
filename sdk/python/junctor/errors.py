"""The error type of the package and the codes of junctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CODES", "Error"]

UNAVAILABLE = "CAPABILITY_UNAVAILABLE"
DECODE_FAILED = "CAPABILITY_DECODE_FAILED"
REQUEST_FAILED = "CAPABILITY_REQUEST_FAILED"

#: The codes of junctor. Each has its HTTP status and its code in the router protocol.
CODES: Mapping[str, tuple[int, str]] = {
    "unauthenticated": (401, UNAVAILABLE),
    "denied": (403, UNAVAILABLE),
    "approval_required": (403, UNAVAILABLE),
    "invalid_input": (400, DECODE_FAILED),
    "too_large": (413, DECODE_FAILED),
    "unknown_capability": (404, UNAVAILABLE),
    "not_found": (404, UNAVAILABLE),
    "conflict": (409, REQUEST_FAILED),
    "selection_required": (409, UNAVAILABLE),
    "slot_conflict": (409, UNAVAILABLE),
    "unavailable": (503, UNAVAILABLE),
    "overloaded": (429, UNAVAILABLE),
    "timeout": (504, REQUEST_FAILED),
    "cancelled": (499, REQUEST_FAILED),
    "failed": (502, REQUEST_FAILED),
    "internal": (500, REQUEST_FAILED),
}

_MAX_RETRY_AFTER = 24 * 3600.0


class Error(Exception):
    """A failure with a code.

    ``code`` is one of :data:`CODES`. ``reason`` is more specific and may be empty. ``hint``
    describes how the caller can proceed and may be empty. ``details`` is a dictionary.
    ``retry_after`` is a number of seconds, or None. ``status`` is the HTTP status of the
    response, or 0.

    Handlers of an endpoint or a node raise it to choose the code that the caller receives.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})
        self.retry_after = retry_after
        self.status = status

    @property
    def approval(self) -> str:
        """The id of the approval that the call needs, or an empty string."""
        found = self.details.get("approval")
        return found if isinstance(found, str) else ""

    def __repr__(self) -> str:
        return f"Error({self.code!r}, {self.message!r}, reason={self.reason!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of junctor's HTTP API."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        for name in ("reason", "hint", "details"):
            if value := getattr(self, name):
                out[name] = value
        if self.retry_after:
            out["retry_after_ms"] = int(self.retry_after * 1000)
        return out

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any], *, status: int = 0) -> Error:
        """Return the error of a JSON object. Members of a wrong type are ignored."""

        def text(name: str) -> str:
            value = wire.get(name)
            return value if isinstance(value, str) else ""

        code = text("code")
        if code == "consent_required":  # the former name
            code = "approval_required"
        after = wire.get("retry_after_ms")
        details = wire.get("details")
        return cls(
            code if code in CODES else "failed",
            text("message") or "the server sent an error without a message",
            reason=text("reason"),
            hint=text("hint"),
            details=details if isinstance(details, dict) else None,
            retry_after=retry_seconds(after),
            status=status,
        )


def retry_seconds(milliseconds: object) -> float | None:
    """Return the delay of a member ``retry_after_ms``, at most a day, or None."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)) or milliseconds <= 0:
        return None
    return min(milliseconds / 1000, _MAX_RETRY_AFTER)
