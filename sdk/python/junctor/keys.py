"""The key of a node: Ed25519 in the NKey form of NATS. It needs the package ``cryptography``."""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from typing import Any

from . import _json

__all__ = ["NodeKey"]

_USER = 20 << 3
_SEED_PREFIX = bytes([18 << 3 | _USER >> 5, (_USER & 31) << 3])


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def _encode(raw: bytes) -> str:
    return base64.b32encode(raw + _crc16(raw).to_bytes(2, "little")).decode().rstrip("=")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class NodeKey:
    """A private key. ``public`` is its public form (``U…``), ``seed`` the secret form (``SU…``)."""

    def __init__(self, seed: str = "") -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        except ImportError:
            raise ImportError("the key of a node needs the package cryptography; install junctor[node]") from None
        raw = _decode_seed(seed) if seed else secrets.token_bytes(32)
        self._key: Any = Ed25519PrivateKey.from_private_bytes(raw)
        self._raw = raw
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _encode(bytes([_USER]) + public)

    def __repr__(self) -> str:
        return f"NodeKey({self.public})"

    @property
    def seed(self) -> str:
        """The secret form of the key."""
        return _encode(_SEED_PREFIX + self._raw)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of some bytes."""
        return bytes(self._key.sign(data))

    def sign_nonce(self, nonce: str) -> str:
        """Return the signature of the bus's nonce."""
        return _b64(self.sign(nonce.encode()))

    def authorization(self, node: str, method: str, path: str, now: float | None = None) -> str:
        """Return the header Authorization of a request for an asset."""
        claim = {"node": node, "ts": int(time.time() if now is None else now), "nonce": secrets.token_hex(16)}
        first = _b64(_json.dumps(claim))
        signed = f"junctor-node-request-v1\n{method}\n{path}\n{first}\n".encode()
        return f"Node {first}.{_b64(self.sign(signed))}"


def _decode_seed(seed: str) -> bytes:
    try:
        data = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        data = b""
    if len(data) != 36 or data[:2] != _SEED_PREFIX or int.from_bytes(data[-2:], "little") != _crc16(data[:-2]):
        raise ValueError("the file of the node's key does not hold a seed of a user key")
    return data[2:34]
