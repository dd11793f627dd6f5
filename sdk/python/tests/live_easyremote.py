"""A program of EasyRemote's users after the change of its import, against a real gateway."""

import os
import time
import unittest

from junctor.easyremote import Client, ComputeNode, RemoteExecutionError, remote, set_default_gateway


class LiveTest(unittest.TestCase):
    def test_a_node_and_its_client(self):
        address = os.environ["INTEROP_ADDRESS"]
        node = ComputeNode(address, node_id="easy", token=os.environ["INTEROP_NODE_TOKEN"])

        @node.register
        def add_numbers(a, b):
            """Add two numbers."""
            return a + b

        @node.register(stream=True)
        def frames(count):
            for n in range(count):
                yield bytes([n])

        @node.register
        async def not_json():
            return object()

        set_default_gateway(address, token=os.environ["INTEROP_OPERATOR"])

        @remote(node_id="easy", function_name="add_numbers", timeout=10)
        def add(a, b):
            pass

        node.serve(blocking=False)
        self.addCleanup(node.stop)
        with Client(address, token=os.environ["INTEROP_OPERATOR"]) as client:
            for _ in range(200):
                try:
                    client.execute_on_node("easy", "add_numbers", 0, 0)
                    break
                except RemoteExecutionError:  # the node has not joined yet
                    time.sleep(0.05)
            self.assertEqual([(n.id, n.status) for n in client.list_nodes()], [("easy", "connected")])
            self.assertEqual(client.execute("add_numbers", 2, b=3), 5)
            self.assertEqual(client.execute_on_node("easy", "add_numbers", 2, 4), 6)
            self.assertEqual(list(client.stream("frames", 3, node_id="easy")), [b"\x00", b"\x01", b"\x02"])
            self.assertEqual(add(1, b=1), 2)
            with self.assertRaisesRegex(Exception, "pickle"):
                client.execute_on_node("easy", "not_json")


if __name__ == "__main__":
    unittest.main()
