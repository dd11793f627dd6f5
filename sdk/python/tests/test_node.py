"""Nodes without a gateway: keys, the bus, declarations."""

import asyncio
import importlib.util
import json
import pathlib
import tempfile
import unittest

import junctor
from junctor import _nats, _session, keys

INSTALLED = all(importlib.util.find_spec(name) for name in ("cryptography", "websockets"))

SEED = "SUADAMJSGM2DKNRXHA4WCYTDMRSWMMBRGIZTINJWG44DSYLCMNSGKZRF4M"
PUBLIC = "UAR3YVERFQPG5EWEVBUCLSDH4J773RKVX755IJCPC6RGVP7752LF22PY"
SIGNATURE = ("a0b28f2de87f332e78947747c9f57ebe1dc6524c136075af491383400701a185"
             "4e00171c7ed8e5976e321069a6fe52beb2a4e444e0fb4eb8dac4405d2dc51f07")


@unittest.skipUnless(INSTALLED, "the packages websockets and cryptography are not installed")
class KeyTest(unittest.TestCase):
    def test_a_seed_gives_the_key_of_nats(self):
        got = keys.NodeKey(SEED)
        self.assertEqual((got.seed, got.public, got.sign(b"nonce").hex()), (SEED, PUBLIC, SIGNATURE))
        self.assertNotIn(SEED, repr(got))

    def test_wrong_seeds_are_refused_and_not_shown(self):
        for seed in (SEED[:-1] + "A", "SAA", PUBLIC, "x" * 58, SEED + "A" * 8):
            with self.subTest(seed), self.assertRaises(ValueError) as got:
                keys.NodeKey(seed)
            self.assertNotIn(seed, str(got.exception))


class BusTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.got = []
        self.bus = _nats.Bus("_INBOX.n", lambda *message: self.got.append(message))

    async def test_messages_in_any_pieces(self):
        stream = (b"INFO {\"nonce\":\"x\"}\r\nPING\r\nMSG a.b 2 5\r\nhello\r\n"
                  b"HMSG a.c 2 r.1 12 14\r\nNATS/1.0\r\n\r\nok\r\nMSG a.b 2 r.2 0\r\n\r\n+OK\r\n")
        want = [("a.b", "", b"hello"), ("a.c", "r.1", b"ok"), ("a.b", "r.2", b"")]
        for size in (1, 2, 3, 7, len(stream)):
            self.got.clear()
            self.bus._buffer = b""
            for at in range(0, len(stream), size):
                self.bus._parse(stream[at:at + size])
            with self.subTest(size):
                self.assertEqual(self.got, want)
        self.assertEqual(self.bus._info.result(), {"nonce": "x"})
        self.assertIn(b"PONG\r\n", self.bus._out)

    async def test_malformed_input_ends_the_connection(self):
        for data in (b"MSG a\r\n", b"MSG a 1 -5\r\n", b"MSG a 1 99999999\r\n", b"HMSG a 1 9 4\r\n", b"x" * 70000, b"MSG a 1 x\r\n"):
            with self.subTest(data[:20]), self.assertRaises(ValueError):
                self.bus._buffer = b""
                self.bus._parse(data)

    async def test_requests_end_with_the_connection(self):
        task = asyncio.create_task(self.bus.request("x", {}))
        await asyncio.sleep(0)
        self.bus._end(None)
        with self.assertRaises(junctor.Error) as got:
            await task
        self.assertEqual(got.exception.reason, "connection_failed")

    async def test_no_receiver_is_an_error(self):
        task = asyncio.create_task(self.bus.request("x", {}))
        await asyncio.sleep(0)
        self.bus._parse(f"HMSG {self.bus._inbox}.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n".encode())
        with self.assertRaises(junctor.Error) as got:
            await task
        self.assertEqual(got.exception.code, "unavailable")

    def test_large_messages_are_refused(self):
        with self.assertRaises(junctor.Error):
            self.bus.publish("x", b"x" * (_nats.MAX_PAYLOAD + 1))

    def test_subject_tokens(self):
        for name, want in (("laptop.1", "laptop=2E1"), ("a_b-c", "a_b-c"), ("é", "=C3=A9")):
            self.assertEqual(_nats.subject_token(name), want)


class DeclarationTest(unittest.TestCase):
    def test_wrong_nodes_are_refused(self):
        for options in ({"gateway": "ftp://h"}, {"gateway": "http://example.com"}, {"token": ""}, {"id": "-x"}, {"id": "a b"},
                        {"labels": [""]}, {"labels": ["x"] * 65}, {"gateway": "tls://h:4222"}):
            with self.subTest(options), self.assertRaises(ValueError):
                junctor.Node(**{"gateway": "https://h", "token": "t", **options})

    @unittest.skipUnless(INSTALLED, "the packages websockets and cryptography are not installed")
    def test_a_folder_without_enrolment_needs_a_token(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "not enrolled"):
            junctor.Node("https://h", token="", directory=pathlib.Path(folder) / "node")

    def test_functions(self):
        node = junctor.Node("https://h", token="t", id="n")

        @node.function(effect="read", tags=["x"])
        async def greet(context: junctor.Context, name: str, times: int = 1) -> str:
            """Greet a person."""
            return name * times

        @node.function
        def count():
            yield 1
        entries = {e["name"]: e for e in node._entries()}
        self.assertEqual(entries["greet"]["input_schema"], {
            "type": "object", "properties": {"name": {"type": "string"}, "times": {"type": "integer", "default": 1}},
            "required": ["name"], "additionalProperties": False})
        self.assertEqual((entries["greet"]["description"], entries["greet"]["effect"], entries["greet"]["output_schema"]),
                         ("Greet a person.", "read", {"type": "string"}))
        self.assertEqual((entries["count"]["stream"], entries["count"]["effect"]), (True, "execute"))
        for options in ({"name": "a b"}, {"name": "device.status"}, {"name": "greet"}, {"effect": "all"}):
            with self.subTest(options), self.assertRaises(ValueError):
                node.add(lambda: 1, **{"name": "f", **options})
        self.assertTrue(node.remove("greet"))
        self.assertEqual(node.functions, ["count"])

    async def refused(self, name):
        node = junctor.Node("https://h", token="jct_token", id="n")
        session = _session.Session(node)
        session.epoch, sent = 1, []
        session.bus.publish = lambda subject, payload, *more, **options: sent.append((subject, payload))
        session._called({"call_id": "c1", "function": name, "epoch": 1}, "v1.gw.n.reply.1")
        await asyncio.sleep(0)
        return [json.loads(payload)["error"] for _, payload in sent]

    def test_requests_about_skills_are_refused(self):
        for name in ("install_remote_skill", "uninstall_remote_skill", "list_installed_skills", "list_node_functions",
                     "get_capability_host_status"):
            with self.subTest(name):
                got = asyncio.run(self.refused("device." + name))
                self.assertEqual([e["code"] for e in got], ["denied"])
                self.assertIn("host/device", got[0]["message"])
        self.assertEqual([e["code"] for e in asyncio.run(self.refused("device.other"))], ["function_not_found"])

    def test_values(self):
        self.assertEqual(_session._written({"a": b"\x00"}), b'{"a":{"$bytes":"AA=="}}')
        with self.assertRaises(junctor.Error):
            _session._written(object())


if __name__ == "__main__":
    unittest.main()
