"""The signed origin of a module.

A signature covers the digest of the manifest, whose members are ordered by a language
collation. This module has the order of ASCII names, which are all names of the protocol, and
refuses a manifest with others. It needs the package ``cryptography``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["digests", "sign", "verify"]

# The printable characters of ASCII in the order of the root collation. Upper and lower case of a
# letter differ only if everything else is equal.
_ORDER = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"
_PRIMARY = {c: _ORDER.index(c.lower()) for c in _ORDER}


def _number(value: int | float) -> str:
    """Return a number as ECMAScript writes it."""
    try:
        n = float(value)
    except OverflowError:
        raise ValueError("a number of the manifest is too large for a double") from None
    if n == 0:
        return "0"
    sign, n = ("-", -n) if n < 0 else ("", n)
    mantissa, _, exponent = f"{n!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        text = digits + "0" * (point - count)
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        e = point - 1
        text = digits[0] + ("." + digits[1:] if count > 1 else "") + ("e+" if e > 0 else "e-") + str(abs(e))
    return sign + text


def _collation_key(name: str) -> tuple[Any, ...]:
    if name.isdigit() and (name == "0" or name[0] != "0") and int(name[:12]) < 2 ** 32 - 1:
        return (0, int(name))  # JavaScript puts array indexes first, by value
    return (1, [_PRIMARY[c] for c in name], [c.isupper() for c in name], name)


def _canonical(value: Any, key: Callable[[str], Any]) -> str:
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return _number(value)
    if isinstance(value, Mapping):
        for name in value:
            if not all(" " <= c <= "~" for c in name):
                raise ValueError(f"the member name {name[:80]!r} of the manifest is not ASCII; this SDK signs and verifies manifests "
                                 "whose member names are ASCII, because Python has no language collation")
        return "{" + ",".join(json.dumps(n) + ":" + _canonical(value[n], key) for n in sorted(value, key=key)) + "}"
    return "[" + ",".join(_canonical(v, key) for v in value) + "]"


def digests(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the two digests that a signature may cover, in hexadecimal.

    The first is that of the collated form, which elizaOS makes, the second that of the RFC 8785
    form. The manifest must be decoded, as :meth:`junctor.module.Module.manifest` returns it.
    It raises ValueError if a member name is not ASCII.
    """
    bare = {k: v for k, v in manifest.items() if k not in ("capabilityEndpointId", "provenance")}

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode("utf-8")).hexdigest()
    return digest(_canonical(bare, _collation_key)), digest(_canonical(bare, str))


def _signed_bytes(issuer: str, subject: str, digest: str) -> bytes:
    return f"issuer:{issuer}\nsubject:{subject}\ndigestSha256:{digest.lower()}".encode()


def sign(manifest: Mapping[str, Any], key: bytes | str, *, issuer: str, subject: str) -> dict[str, str]:
    """Return the provenance of a manifest, signed with a private Ed25519 key in PEM form."""
    serialization, ed25519 = _cryptography()
    try:
        private = serialization.load_pem_private_key(key.encode() if isinstance(key, str) else key, None)
    except (TypeError, ValueError):
        raise ValueError("the signing key is not a private key in PEM form without a password") from None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ValueError("the signing key is not an Ed25519 key")
    digest = digests(manifest)[0]
    signature = private.sign(_signed_bytes(issuer, subject, digest))
    return {"issuer": issuer, "subject": subject, "digestSha256": digest, "signatureAlgorithm": "ed25519",
            "signature": base64.b64encode(signature).decode()}


def verify(manifest: Mapping[str, Any], public_key: bytes | str) -> None:
    """Verify the provenance of a decoded manifest with the issuer's public key in PEM form.

    It raises ValueError with the reason if the provenance is missing or does not hold.
    """
    serialization, ed25519 = _cryptography()
    from cryptography.exceptions import InvalidSignature
    found = manifest.get("provenance")
    if not isinstance(found, Mapping):
        raise ValueError("the manifest is not signed")
    if found["signatureAlgorithm"].lower() != "ed25519":
        raise ValueError("the signature algorithm is not ed25519")
    if found["digestSha256"].lower() not in digests(manifest):
        raise ValueError("the manifest is not the one that was signed")
    try:
        public = serialization.load_pem_public_key(public_key.encode() if isinstance(public_key, str) else public_key)
        if not isinstance(public, ed25519.Ed25519PublicKey):
            raise ValueError
    except ValueError:
        raise ValueError("the public key is not an Ed25519 key in PEM form") from None
    try:
        public.verify(base64.b64decode(found["signature"], validate=True),
                      _signed_bytes(found["issuer"], found["subject"], found["digestSha256"]))
    except (InvalidSignature, binascii.Error, ValueError):
        raise ValueError(f"the signature of {found['issuer']} does not fit") from None


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ImportError("signatures need the package cryptography; install junctor[sign]") from None
    return serialization, ed25519
