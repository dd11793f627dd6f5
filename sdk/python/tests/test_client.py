"""The client against a server that misbehaves."""

import asyncio
import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import junctor

TOKEN = "a-token-that-must-not-leak"


class Server:
    """An HTTP server whose handler is a function of the request."""

    def __init__(self, answer):
        outer = self
        self.requests = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, self.path, dict(self.headers), body))
                answer(self)

            do_POST = do_DELETE = do_GET

            def send(self, status, body, **headers):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class AddressTest(unittest.TestCase):
    def test_wrong_addresses_are_refused(self):
        for url in ("", "127.0.0.1:7777", "ftp://x", "http://", "http://user:pw@127.0.0.1", "::", "http://h:99999", "http://h?x=1"):
            with self.subTest(url):
                with self.assertRaises(junctor.Error) as got:
                    junctor.Client(url)
                self.assertEqual(got.exception.code, "invalid_input")

    def test_token_with_a_line_break_is_refused_and_not_shown(self):
        with self.assertRaises(junctor.Error) as got:
            junctor.Client("http://h", TOKEN + "\r\nx: y")
        self.assertNotIn(TOKEN, str(got.exception))


class FailureTest(unittest.TestCase):
    def check(self, answer, code, **attributes):
        with Server(answer) as server, junctor.Client(server.url, TOKEN, timeout=2) as client:
            for name, call in (
                ("request", lambda: client.request("GET", "/x")),
                ("lines", lambda: list(client.lines("GET", "/x"))),
            ):
                with self.subTest(name), self.assertRaises(junctor.Error) as got:
                    call()
                self.assertEqual(got.exception.code, code)
                self.assertNotIn(TOKEN, f"{got.exception} {got.exception!r}")
                for key, value in attributes.items():
                    self.assertEqual(getattr(got.exception, key), value, key)

    def test_an_error_keeps_its_members(self):
        body = {"error": {"code": "overloaded", "reason": "busy", "message": "no", "hint": "wait", "details": {"n": 1},
            "retry_after_ms": 1500}}
        self.check(lambda h: h.send(429, json.dumps(body).encode()), "overloaded", reason="busy", hint="wait", details={"n": 1},
                   retry_after=1.5, status=429, message="no")

    def test_the_message_form_of_the_connect_api_is_read(self):
        self.check(lambda h: h.send(403, b'{"error":"m","code":"denied","reason":"r"}'), "denied", message="m", reason="r")

    def test_html_is_a_failure(self):
        self.check(lambda h: h.send(502, b"<h1>oops</h1>"), "failed")

    def test_text_is_not_an_answer(self):
        self.check(lambda h: h.send(200, b"hello"), "failed")

    def test_a_closed_connection_is_unavailable(self):
        def close(handler):
            handler.close_connection = True
        self.check(close, "unavailable")

    def test_a_redirect_is_not_followed(self):
        with Server(lambda h: h.send(200, b"{}")) as other:
            self.check(lambda h: h.send(307, b"", Location=other.url), "failed")
            self.assertEqual(other.requests, [])

    def test_a_cut_body_is_unavailable(self):
        def cut(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "100")
            handler.end_headers()
            handler.wfile.write(b"{}")
            handler.close_connection = True
        with Server(cut) as server, self.assertRaises(junctor.Error) as got:
            junctor.Client(server.url).request("GET", "/x")
        self.assertEqual(got.exception.code, "unavailable")

    def test_a_slow_answer_times_out(self):
        with Server(lambda h: time.sleep(3)) as server, self.assertRaises(junctor.Error) as got:
            junctor.Client(server.url).request("GET", "/x", timeout=0.2)
        self.assertEqual(got.exception.code, "timeout")

    def test_a_large_answer_is_refused(self):
        with Server(lambda h: h.send(200, b" " * 5000)) as server:
            response = junctor.Client(server.url)._http.send("GET", "/x", None)
            with self.assertRaises(junctor.Error) as got:
                response.read(1000)
            self.assertEqual(got.exception.code, "too_large")
            response = junctor.Client(server.url)._http.send("GET", "/x", None)
            with self.assertRaises(junctor.Error) as got:
                list(response.lines(1000))
            self.assertEqual(got.exception.code, "too_large")

    def test_a_closed_client_refuses_requests(self):
        client = junctor.Client("http://127.0.0.1:1")
        client.close()
        with self.assertRaises(junctor.Error) as got:
            client.status()
        self.assertEqual(got.exception.code, "invalid_input")


class CallTest(unittest.TestCase):
    def test_options_are_sent_and_the_connection_is_reused(self):
        peers = set()

        def answer(handler):
            peers.add(handler.client_address)
            handler.send(200, b'{"ok":true,"result":[1],"invocation":{"id":"run_1","provider":"p"}}')

        with Server(answer) as server, junctor.Client(server.url + "/", TOKEN) as client:
            got = client.invoke("fs.list", {"path": "."}, select={"endpoint": "e"}, timeout=1.5, idempotency_key="k", session="s")
            self.assertEqual((got.result, got.id, got.provider), ([1], "run_1", "p"))
            client.call("fs.list")
            self.assertEqual(len(peers), 1)
            method, path, headers, body = server.requests[0]
            self.assertEqual((method, path, headers["Authorization"]), ("POST", "/api/v1/invocations", "Bearer " + TOKEN))
            self.assertEqual(json.loads(body), {"target": "fs.list", "input": {"path": "."}, "select": {"endpoint": "e"},
                                                "timeout": "1500ms", "idempotency_key": "k", "session": "s"})

    def test_an_unknown_option_is_an_error(self):
        with self.assertRaises(TypeError):
            junctor.Client("http://h").call("x", {}, selector={})

    def test_a_call_that_needs_an_approval_is_repeated(self):
        bodies = []

        def answer(handler):
            bodies.append(1)
            if len(bodies) < 3:
                return handler.send(403, b'{"error":{"code":"approval_required","message":"m","details":{"approval":"apr_1"}}}')
            handler.send(200, b'{"result":"done"}')

        with Server(answer) as server, junctor.Client(server.url) as client:
            with self.assertRaises(junctor.Error) as got:
                client.call("x")
            self.assertEqual(got.exception.approval, "apr_1")
            self.assertEqual(client.call("x", approval_wait=10), "done")
        self.assertEqual(len(bodies), 3)

    def test_stream_yields_chunks_or_the_result(self):
        for lines, want in (
            ([{"progress": {"progress": 1, "data": {"n": 1}}}, {"progress": {"stage": "log", "data": "x"}}, {"result": 7}], [{"n": 1}]),
            ([{"progress": {"progress": 0.5}}, {"result": 7}], [7]),
        ):
            body = b"\n".join(json.dumps(line).encode() for line in lines)
            with Server(lambda h: h.send(200, body)) as server:
                self.assertEqual(list(junctor.Client(server.url).stream("x")), want)

    def test_cancelled_async_call_ends_its_request(self):
        ended = threading.Event()

        def answer(handler):
            try:
                while not handler.connection.recv(1) == b"":
                    pass
            except OSError:
                pass
            ended.set()
            handler.close_connection = True

        async def main(url):
            async with junctor.AsyncClient(url) as client:
                task = asyncio.create_task(client.call("x"))
                await asyncio.sleep(0.2)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertTrue(await asyncio.to_thread(ended.wait, 5), "the server still waits for the client")

        with Server(answer) as server:
            asyncio.run(main(server.url))

    def test_async_and_sync_client_have_the_same_methods(self):
        public = {n for n in dir(junctor.Client) if not n.startswith("_")}
        self.assertEqual(public, {n for n in dir(junctor.AsyncClient) if not n.startswith("_")})


if __name__ == "__main__":
    unittest.main()
