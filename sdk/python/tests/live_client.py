"""The client against a real server, which JUNCTOR_URL names. The server's tests start it."""

import asyncio
import os
import threading
import unittest

import junctor


class LiveTest(unittest.TestCase):
    def setUp(self):
        self.client = junctor.Client()
        self.operator = junctor.Client(token=os.environ["INTEROP_OPERATOR"])
        self.addCleanup(self.client.close)
        self.addCleanup(self.operator.close)

    def test_catalog(self):
        self.client.wait_ready(5)
        self.assertEqual(self.client.status()["principal"]["role"], "agent")
        found = {c.name: c for c in self.client.capabilities()}
        self.assertEqual((found["fs.readText"].effect, found["fs.readText"].needs_approval), ("read", False))
        self.assertEqual((found["fs.writeText"].effect, found["fs.writeText"].needs_approval), ("write", True))
        self.assertIn("fs.readText", [c.name for c in self.client.search("read a text file", limit=3)])
        self.assertEqual(self.client.describe("fs.readText").input_schema["required"], ["path"])
        self.assertEqual(self.client.explain("fs.readText")["selected"]["provider"], "fs:node:local")

    def test_calls(self):
        got = self.client.invoke("fs.readText", {"path": "note.txt"}, timeout=10, select={"provider": "fs:node:local"})
        self.assertEqual((got.result["text"], got.provider), ("hello\n", "fs:node:local"))
        self.assertRegex(got.id, "^run_")
        self.assertEqual(list(self.client.stream("fs.readText", {"path": "note.txt"}))[0]["text"], "hello\n")
        for target, input, code in (("no.such", {}, "unknown_capability"), ("fs.readText", {}, "invalid_input"),
                                    ("fs.readText", {"path": "none.txt"}, "not_found")):
            with self.subTest(target), self.assertRaises(junctor.Error) as got:
                self.client.call(target, input)
            self.assertEqual(got.exception.code, code)
        with self.assertRaises(junctor.Error) as got:
            junctor.Client(token="wrong").status()
        self.assertEqual((got.exception.code, got.exception.status), ("unauthenticated", 401))

    def decide(self, path, decision):
        """Decide the approval of the write of a path, when it has been requested."""
        def run():
            for _ in range(100):
                for a in self.operator.approvals("pending"):
                    if path in a.summary:
                        self.decided = self.operator.decide(a.id, decision)
                        return
                threading.Event().wait(0.1)
        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)

    def test_an_approved_call_runs(self):
        with self.assertRaises(junctor.Error) as got:
            self.client.call("fs.writeText", {"path": "a.txt", "text": "a"})
        self.assertEqual(got.exception.code, "approval_required")
        shown = self.operator.approval(got.exception.approval)
        self.assertEqual((shown.state, shown.effect, shown.input), ("pending", "write", {"path": "a.txt", "text": "a"}))
        self.decide("a.txt", "once")
        got = self.client.call("fs.writeText", {"path": "a.txt", "text": "a"}, approval_wait=30)
        self.assertEqual(got["bytesWritten"], 1)
        self.assertEqual(self.operator.wait_approval(shown.id, 10).state, "approved")

    def test_a_denied_call_fails(self):
        self.decide("b.txt", "deny")
        with self.assertRaises(junctor.Error) as got:
            self.client.call("fs.writeText", {"path": "b.txt", "text": "b"}, approval_wait=30)
        self.assertEqual(got.exception.code, "denied")

    def test_an_idempotency_key_makes_one_call(self):
        first = self.client.invoke("memory.store", {"text": "one"}, idempotency_key="key-1")
        again = self.client.invoke("memory.store", {"text": "one"}, idempotency_key="key-1")
        self.assertEqual(first.result, again.result)

    def test_chat(self):
        reply = self.operator.chat("what is it?", session="py")
        self.assertEqual((reply.type, reply.text), ("text", "four words it is"))
        self.assertRegex(reply.run, "^tsk_")
        run = self.operator.wait_run(reply.run, 10)
        self.assertEqual((run.state, run.session), ("completed", "py"))
        self.assertEqual([r.id for r in self.operator.runs(session="py")], [run.id])
        events = list(self.operator.run_events(run.id))
        self.assertEqual((events[-1].type, events[-1].data["state"]), ("end", "completed"))
        self.assertEqual([m["role"] for m in self.operator.history("py")], ["user", "assistant"])
        events = list(self.operator.chat_stream("and this?", session="py2"))
        self.assertEqual("".join(e.data for e in events if e.type == "text"), "four words it is")
        self.assertEqual((events[-1].type, events[-1].data.text), ("reply", "four words it is"))

    def test_tasks(self):
        self.assertEqual(self.client.tasks(), [])
        with self.assertRaises(junctor.Error) as got:
            self.client.task("tsk_" + "0" * 32)
        self.assertEqual(got.exception.code, "not_found")

    def test_async(self):
        async def main():
            async with junctor.AsyncClient() as client:
                calls = [client.call("fs.readText", {"path": "note.txt"}) for _ in range(100)]
                return [r["text"] for r in await asyncio.gather(*calls)], [c async for c in client.stream("fs.list", {})]
        texts, chunks = asyncio.run(main())
        self.assertEqual(texts, ["hello\n"] * 100)
        self.assertEqual(len(chunks), 1)


if __name__ == "__main__":
    unittest.main()
