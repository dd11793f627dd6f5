"""The decoding of the router protocol, with the vectors that the server's decoder is tested with."""

import json
import os
import pathlib
import unittest

from junctor import _json, _router

VECTORS = pathlib.Path(os.environ.get("JUNCTOR_VECTORS") or pathlib.Path(__file__).parents[3] / "protocol" / "router" / "testdata")
STRICTER = "refused"


def outcome(vector):
    """Return how the vector differs from what is expected, or an empty text."""
    expect, method = vector["expect"], vector["method"]
    sent = value = error = None
    try:
        sent = _router.decode_params(method, vector.get("params"))
        value = _router.decode_result(method, vector.get("result"))
    except _router.WireError as err:
        error = err
    if expect["ok"] and error is not None:
        return f"{STRICTER}: {error}"
    if not expect["ok"] and error is None:
        return f"accepted {value}"
    if ("sent" in expect) != (sent is not None) or sent is not None and sent != expect["sent"]:
        return f"sent {sent}, want {expect.get('sent')}"
    if expect["ok"] and value != expect["value"]:
        return f"decoded {value}, want {expect['value']}"
    if not expect["ok"] and (error.code, error.method) != (expect["code"], expect["at"]):
        return f"got {error.code} at {error.method}, want {expect['code']} at {expect['at']}"
    return ""


class VectorTest(unittest.TestCase):
    def test_a_string_without_an_end_is_read_once(self):
        with self.assertRaises(ValueError):
            _json.loads(b"[" * 70 + b'"' + b'\\"' * 400_000)

    def test_decoder_agrees_with_the_vectors(self):
        if not (VECTORS / "vectors.ndjson").exists():
            self.skipTest("the vectors are in the repository of junctor only")
        deviations = {line.split()[0] for line in (VECTORS / "deviations.txt").read_text().splitlines() if line and line[0] != "#"}
        count = 0
        for line in (VECTORS / "vectors.ndjson").read_bytes().splitlines():
            vector = json.loads(line)
            if vector["method"] in _router.OTHER_METHODS:
                continue
            count += 1
            with self.subTest(vector["id"]):
                got = outcome(vector)
                if vector["id"] in deviations:
                    self.assertTrue(got.startswith(STRICTER), f"got {got!r}, want a refusal")
                else:
                    self.assertEqual(got, "")
        self.assertGreater(count, 650)


class JsonTest(unittest.TestCase):
    def test_loose_json_is_refused(self):
        for text in (b'{"a":1,"a":2}', b"NaN", b"[Infinity]", b"1e999", b'"\xff"', b"[1,]", b"", b"{} {}", b"[" * 65 + b"]" * 65,
                     b'{"a":' * 2000 + b"1" + b"}" * 2000):
            with self.subTest(text[:20]), self.assertRaises(ValueError):
                _json.loads(text)

    def test_brackets_in_strings_are_not_nesting(self):
        self.assertEqual(_json.loads(b'"' + b"[" * 100 + b'\\""'), "[" * 100 + '"')

    def test_values_without_a_json_form_are_refused(self):
        for value in (float("nan"), object(), b"x", "\ud800"):
            with self.subTest(repr(value)), self.assertRaises((TypeError, ValueError)):
                _json.dumps(value)


class PathTest(unittest.TestCase):
    def test_routes(self):
        for declared, path, want in (
            ("/a", "/a", {}), ("/a/:id", "/a/b%20c", {"id": "b c"}), ("/a/:id", "/a", None), ("/a/:rest*", "/a/b/c", {"rest": "b/c"}),
            ("/a/:id", "/a/%zz", {"id": "%zz"}), ("/a", "/b", None), ("/a", "/a/b", None), ("/:id", "/", None),
        ):
            with self.subTest(f"{declared} {path}"):
                self.assertEqual(_router.match_route(declared, path), want)

    def test_asset_urls_cannot_leave_their_module(self):
        self.assertEqual(_router.parse_asset_url("m/a%20b/c.js"), ("m", "/a b/c.js"))
        for url in ("", "m", "m/", "/x", "m//x", "m/../x", "m/%2e%2e/x", "m/..%2fx", "m/%5c..", "a b/x", "m/%", "m/%ff", "m/x%00", "m/a?b"):
            with self.subTest(url), self.assertRaises(_router.WireError):
                _router.parse_asset_url(url)


if __name__ == "__main__":
    unittest.main()
