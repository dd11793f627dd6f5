"""The names of EasyRemote, without a gateway."""

import unittest
from unittest import mock

from junctor import easyremote


class EasyRemoteTest(unittest.TestCase):
    def test_addresses(self):
        for given, want in (("localhost:8080", "http://localhost:8080"), ("127.0.0.1:1", "http://127.0.0.1:1"),
                            ("gateway.example.com:8080", "https://gateway.example.com:8080"), ("https://h", "https://h")):
            self.assertEqual(easyremote._address(given), want)

    def test_pickle_is_refused_with_its_replacement(self):
        client = easyremote.Client("localhost:1", token="t")
        for call in (lambda: client.execute("f", object()), lambda: client.execute("f", x=lambda: 1), lambda: client.stream("f", {1j})):
            with self.assertRaisesRegex(TypeError, "pickle.*JSON"):
                call()
        with self.assertRaisesRegex(TypeError, "pickle"):
            easyremote._writable(lambda: object())()

    def test_code_as_text_is_refused(self):
        node = easyremote.ComputeNode("localhost:1", "n", token="t")
        with self.assertRaisesRegex(TypeError, "skill"):
            node.register("def f(): pass")
        with self.assertRaisesRegex(TypeError, "skill"):
            easyremote.ComputeNode("localhost:1", "n", token="t", allow_transferred_code=True)
        with self.assertRaisesRegex(TypeError, "junctor serve"):
            easyremote.Server(port=8080)

    def test_functions_are_registered(self):
        node = easyremote.ComputeNode(vps_address="localhost:1", node_id="n", token="t", capabilities=["gpu"])

        @node.register
        def add(a, b):
            return a + b

        @node.register(name="frames", stream=True)
        def process(data: bytes):
            yield data
        easyremote.register(lambda: 1, node=node, name="one")
        self.assertEqual(node.node.functions, ["add", "frames", "one"])
        self.assertEqual(add(1, 2), 3)
        with self.assertRaises(ValueError):
            node.register(add)
        node.register(add, replace=True)
        self.assertTrue(node.unregister("add"))
        self.assertFalse(node.unregister("add"))

    def test_remote_calls_the_node(self):
        client = easyremote.set_default_gateway("localhost:1", token="t")

        @easyremote.remote(node_id="gpu", function_name="add_numbers", timeout=5)
        def add(a, b):
            raise AssertionError("the body is not executed")
        with mock.patch.object(client.client, "call_node", return_value={"$bytes": "aGk="}) as call:
            self.assertEqual(add(1, b=b"x"), b"hi")
        call.assert_called_once_with("add_numbers", 1, node="gpu", options={"timeout": 5}, b={"$bytes": "eA=="})


if __name__ == "__main__":
    unittest.main()
