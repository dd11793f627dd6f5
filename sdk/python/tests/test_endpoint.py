"""Endpoints: declarations, calls and what keeps strangers from doing harm."""

import http.client
import json
import logging
import socket
import time
import unittest
from dataclasses import dataclass
from typing import Annotated, Literal

import junctor
from junctor import endpoint as module
from junctor import manifest

logging.getLogger("junctor.endpoint").setLevel(logging.CRITICAL)

try:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    ed25519 = None


@dataclass
class Sum:
    total: int


def greeter(**more):
    endpoint = junctor.Endpoint("greeter", name="@you/greeter", **more)

    @endpoint.action
    def greet(name: Annotated[str, "Who is greeted"], style: Literal["short", "long"] = "short"):
        """Greet a person.

        In one of two styles.
        """
        return f"hello {name}" if style == "short" else f"good morning {name}"

    @endpoint.action(name="ADD")
    async def add(a: int, b: int = 1):
        return Sum(a + b)

    @endpoint.action
    def fail():
        raise RuntimeError("the secret text")

    @endpoint.action
    def refuse():
        raise junctor.Error("overloaded", "later", reason="busy", hint="wait", retry_after=2)

    @endpoint.action
    def odd():
        return junctor.ActionResult(values=[1])

    @endpoint.action
    def unwritable():
        return {"x": float("nan")}

    @endpoint.provider
    def state(state):
        return {"n": len(state)}

    @endpoint.route("GET", "/notes/:id", public_reason="everyone may read them")
    def note(request):
        return junctor.RouteResponse({"id": request.params["id"], "q": request.query.get("q")}, 201, {"x-a": "b"})

    endpoint.view("v", label="V", bundle=b"export default 1;\n")
    return endpoint


class Caller:
    """HTTP requests to an endpoint."""

    def __init__(self, server, token=""):
        self.address = server.url.removeprefix("http://")
        self.token = token

    def send(self, method, path, body=None, **headers):
        conn = http.client.HTTPConnection(self.address, timeout=10)
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        conn.request(method, path, body=body, headers=headers)
        response = conn.getresponse()
        data = response.read()
        conn.close()
        return response.status, dict(response.getheaders()), data

    def call(self, rpc, **params):
        body = json.dumps({"method": rpc, "params": {"moduleId": "greeter", **params}})
        status, _, data = self.send("POST", "/v1/capabilities/invoke", body)
        return status, json.loads(data)

    def act(self, action, **content):
        return self.call("plugin.action.invoke", action=action, content=content)


class EndpointTest(unittest.TestCase):
    def setUp(self):
        self.endpoint = greeter()
        self.server = self.endpoint.start()
        self.addCleanup(self.server.close)
        self.caller = Caller(self.server)

    def test_the_manifest_follows_from_the_functions(self):
        found = self.endpoint.manifest()
        self.assertEqual(found["actions"][0], {
            "name": "GREET", "description": "Greet a person.", "parameters": [
                {"name": "name", "description": "Who is greeted", "required": True,
                 "schema": {"type": "string", "description": "Who is greeted"}},
                {"name": "style", "description": "style", "required": False,
                 "schema": {"type": "string", "enum": ["short", "long"], "default": "short"}}]})
        self.assertEqual(found["routes"], [{"method": "GET", "path": "/notes/:id", "public": True,
            "publicReason": "everyone may read them"}])

    def test_results(self):
        for action, content, want in (
            ("GREET", {"name": "Ann"}, {"text": "hello Ann"}),
            ("GREET", {"name": "Ann", "style": "long", "source": "chat"}, {"text": "good morning Ann"}),
            ("ADD", {"a": 1}, {"data": {"total": 2}}),
        ):
            with self.subTest(f"{action} {content}"):
                self.assertEqual(self.caller.act(action, **content), (200, {"ok": True, "result": want}))
        got = self.caller.call("plugin.action.invoke", action="GREET", content={"text": "hi"}, options={"parameters": {"name": "Bo"}})
        self.assertEqual(got, (200, {"ok": True, "result": {"text": "hello Bo"}}))
        self.assertEqual(self.caller.call("plugin.provider.get", provider="STATE", state={"a": 1})[1]["result"], {"data": {"n": 1}})
        got = self.caller.call("plugin.route.call", method="GET", path="/notes/a%20b", query={"q": "x"})[1]["result"]
        self.assertEqual(got, {"status": 201, "headers": {"x-a": "b"}, "body": {"id": "a b", "q": ["x"]}})

    def test_failures(self):
        for action, content, code, reason in (
            ("GREET", {}, "CAPABILITY_DECODE_FAILED", "invalid_params"),
            ("GREET", {"name": 1}, "CAPABILITY_DECODE_FAILED", "invalid_params"),
            ("GREET", {"name": "a", "style": "x"}, "CAPABILITY_DECODE_FAILED", "invalid_params"),
            ("FAIL", {}, "CAPABILITY_REQUEST_FAILED", None), ("REFUSE", {}, "CAPABILITY_UNAVAILABLE", "busy"),
            ("NONE", {}, "CAPABILITY_UNAVAILABLE", None), ("ODD", {}, "CAPABILITY_DECODE_FAILED", "decode_failed"),
            ("UNWRITABLE", {}, "CAPABILITY_REQUEST_FAILED", None),
        ):
            with self.subTest(f"{action} {content}"):
                status, body = self.caller.act(action, **content)
                self.assertEqual((status, body["ok"], body["error"]["code"]), (200, False, code))
                self.assertEqual(body["error"]["details"].get("reason"), reason)
                self.assertNotIn("secret", json.dumps(body))
        details = self.caller.act("REFUSE")[1]["error"]["details"]
        self.assertEqual(details, {"code": "overloaded", "reason": "busy", "hint": "wait", "retry_after_ms": 2000})

    def test_malformed_requests_are_refused(self):
        for body, status in (
            (b"", 400), (b"[]", 400), (b'{"method":7}', 400), (b'{"method":"a","method":"b"}', 400), (b'{"method":"\xff"}', 400),
            (b'{"method":"plugin.modules.list","params":' + b"[" * 600 + b"]" * 600 + b"}", 400), (b'{"method":"plugin.no.such"}', 200),
            (b'{"method":"fs.list","params":{}}', 200), (b"x" * (5 << 20), 413),
        ):
            with self.subTest(body[:40]):
                got, headers, data = self.caller.send("POST", "/v1/capabilities/invoke", body)
                self.assertEqual((got, json.loads(data)["ok"], headers["Content-Type"]), (status, False, "application/json"))
        for method, path in (("GET", "/"), ("DELETE", "/v1/capabilities/invoke"), ("POST", "/v1/capabilities"), ("BREW", "/")):
            with self.subTest(f"{method} {path}"):
                status, _, data = self.caller.send(method, path)
                self.assertIn(status, (404, 501))
                self.assertFalse(json.loads(data)["ok"])

    def test_framing_that_proxies_disagree_about_is_refused(self):
        for head in ("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "Content-Length: 2\r\nContent-Length: 3\r\n",
            "Content-Length: +2\r\n",
                     "Content-Length: -1\r\n"):
            with self.subTest(head), socket.create_connection(self.caller.address.split(":"), timeout=10) as conn:
                conn.sendall(f"POST /v1/capabilities/invoke HTTP/1.1\r\nHost: x\r\n{head}\r\n{{}}".encode())
                answer = b""
                while piece := conn.recv(4096):
                    answer += piece
                self.assertRegex(answer.split(b"\r\n")[0], rb"HTTP/1.1 4\d\d")

    def test_slow_requests_are_ended(self):
        before, module._HEAD_TIMEOUT = module._HEAD_TIMEOUT, 0.3
        try:
            with socket.create_connection(self.caller.address.split(":"), timeout=10) as conn:
                for _ in range(20):
                    try:
                        conn.sendall(b"G")
                    except OSError:
                        break
                    time.sleep(0.1)
                else:
                    self.fail("got 20 pieces of a header in 2 s, want an end after 0.3 s")
        finally:
            module._HEAD_TIMEOUT = before

    def test_a_connection_serves_several_requests(self):
        conn = http.client.HTTPConnection(self.caller.address, timeout=10)
        self.addCleanup(conn.close)
        for _ in range(3):
            conn.request("POST", "/v1/capabilities/invoke", b'{"method":"plugin.modules.list"}')
            self.assertTrue(json.loads(conn.getresponse().read())["ok"])
            self.assertIsNotNone(conn.sock, "the server closed the connection")

    def test_assets(self):
        status, headers, data = self.caller.send("GET", "/v1/capabilities/assets/greeter/assets/v.js")
        self.assertEqual((status, data, headers["Content-Type"]), (200, b"export default 1;\n", "text/javascript"))
        got = self.caller.send("GET", "/v1/capabilities/assets/greeter/assets/v.js", **{"If-None-Match": headers["ETag"]})
        self.assertEqual((got[0], got[2]), (304, b""))
        self.assertEqual(self.caller.send("HEAD", "/v1/capabilities/assets/greeter/assets/v.js")[2], b"")
        for path, want in (("greeter/none.js", 404), ("none/x.js", 404), ("greeter/%2e%2e/x", 400), ("greeter", 400)):
            with self.subTest(path):
                self.assertEqual(self.caller.send("GET", "/v1/capabilities/assets/" + path)[0], want)


class TokenTest(unittest.TestCase):
    def test_every_path_needs_the_token(self):
        with greeter(token=" right \n").start() as server:
            for token, want in (("", 401), ("wrong", 401), ("righ", 401), ("right", 200)):
                for method, path in (("GET", "/v1/capabilities"), ("GET", "/v1/capabilities/assets/greeter/assets/v.js"), ("GET", "/none")):
                    with self.subTest(f"{token} {path}"):
                        status, headers, data = Caller(server, token).send(method, path)
                        self.assertEqual(status, want if path != "/none" or want == 401 else 404)
                        self.assertNotIn(b"right", data)
                        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_a_web_page_cannot_call_an_endpoint_without_a_token(self):
        body = json.dumps({"method": "plugin.action.invoke", "params": {"moduleId": "greeter", "action": "none", "content": {}}})
        for token in ("", "right"):
            with greeter(token=token).start() as server:
                for header, value in (("Origin", "https://page.example"), ("Sec-Fetch-Site", "cross-site")):
                    with self.subTest(f"{token} {header}"):
                        status, _, _ = Caller(server, token).send("POST", "/v1/capabilities/invoke", body, **{header: value})
                        self.assertEqual(status, 200 if token else 403)
                        status, _, _ = Caller(server, token).send("GET", "/v1/capabilities/assets/greeter/assets/v.js", **{header: value})
                        self.assertEqual(status, 200)

    def test_an_address_that_others_can_reach_needs_a_token(self):
        with self.assertRaises(ValueError):
            greeter().start("0.0.0.0")


class DeclarationTest(unittest.TestCase):
    def test_wrong_declarations_are_refused(self):
        def twice(e):
            e.event("a")(print)
            e.event("a")(print)

        def untyped(e):
            @e.action
            def action(x: complex):
                pass
        for name, declare in (
            ("module id", lambda e: junctor.Module("a b")), ("config", lambda e: junctor.Module("a", config={"x": []})), ("twice", twice),
            ("slot", lambda e: e.widget("w", label="W", slot="wallet")), ("view", lambda e: e.view("v", label="V")),
            ("bundle path", lambda e: e.view("v", label="V", bundle=b"x", path="/v.css")), ("hook", lambda e: e.lifecycle("start")(print)),
            ("route", lambda e: e.route("STATIC", "/x")(print)), ("route path", lambda e: e.route("GET", "x")(print)),
            ("public", lambda e: e.route("POST", "/x", public_reason="r")(print)), ("kind", lambda e: e.app(kind="all")),
            ("service", lambda e: e.service("s", method="toString")(print)), ("asset", lambda e: e.asset("../x", b"", "text/plain")),
            ("untyped", untyped), ("module twice", lambda e: e.include(junctor.Module("m"))),
        ):
            with self.subTest(name), self.assertRaises((ValueError, TypeError)):
                declare(junctor.Endpoint("m"))

    def test_a_refused_item_leaves_the_module_as_it_was(self):
        module = junctor.Module("m")
        with self.assertRaises(ValueError):
            module.event(" ")(print)
        self.assertEqual(module.manifest(), {"id": "m", "name": "m"})


class SignatureTest(unittest.TestCase):
    def test_digests_are_those_of_the_server(self):
        value = {"id": "m", "b": 1.0, "B": -0.0, "a-b": 1e21, "a_b": 1e-7, "10": 0.1, "9": 123456789012345680000, "$x": "é\u2028\"",
                 "list": [True, None, 5e-324], "provenance": {}, "capabilityEndpointId": "x"}
        self.assertEqual(manifest._canonical({k: v for k, v in value.items() if k not in ("provenance", "capabilityEndpointId")},
                                             manifest._collation_key),
                         '{"9":123456789012345680000,"10":0.1,"$x":"é\u2028\\"","a_b":1e-7,"a-b":1e+21,"b":1,"B":0,"id":"m",'
                         '"list":[true,null,5e-324]}')

    def test_names_that_are_not_ascii_are_refused(self):
        with self.assertRaisesRegex(ValueError, "not ASCII"):
            manifest.digests({"id": "m", "metadata": {"é": 1}})

    @unittest.skipIf(ed25519 is None, "the package cryptography is not installed")
    def test_a_changed_manifest_does_not_verify(self):
        key = ed25519.Ed25519PrivateKey.generate()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        endpoint = greeter()
        endpoint.sign(private, issuer="lab")
        found = endpoint.manifest()
        manifest.verify(found, public)
        with self.assertRaises(ValueError):
            manifest.verify({**found, "description": "other"}, public)
        with self.assertRaisesRegex(ValueError, "signed already"):
            endpoint.event("late")(print)
        other = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with self.assertRaises(ValueError):
            manifest.verify(found, other)


if __name__ == "__main__":
    unittest.main()
