#!/usr/bin/env python3
"""An endpoint of the capability-router protocol with the standard library only.

One module, word-count, that offers every surface of the protocol. Copy it and
put your own work where count() is.

    python3 endpoint.py [--port 0] [--token-file FILE]

It prints one JSON line with its URL when it is ready. Then, from elsewhere:

    junctor connect URL
    junctor invoke word-count:action:COUNT_WORDS '{"text":"how many words are these"}'
"""

import argparse
import base64
import collections
import hashlib
import hmac
import json
import pathlib
import re
import signal
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 4 << 20

# ---- The work ---------------------------------------------------------------

lock = threading.Lock()  # the server answers on many threads
texts = collections.deque(maxlen=50)  # the last counts, newest last
settings = {"minimum": 1}


def words_of(text):
    return [w for w in re.findall(r"[^\W\d_]+", text.lower()) if len(w) >= settings["minimum"]]


def count(text):
    if not isinstance(text, str):
        raise decode_error("text must be a string")
    words = words_of(text)
    result = {
        "words": len(words),
        "distinct": len(set(words)),
        "characters": len(text),
        "common": [w for w, _ in collections.Counter(words).most_common(3)],
    }
    with lock:
        texts.append(result)
    return result


def sentence(result):
    return f"{result['words']} words, {result['distinct']} of them different"


# ---- The module -------------------------------------------------------------

BUNDLE_PATH = "/assets/word-count.js"
BUNDLE = (pathlib.Path(__file__).parent / "view.js").read_bytes()
INTEGRITY = "sha256-" + base64.b64encode(hashlib.sha256(BUNDLE).digest()).decode()

MANIFEST = {
    "id": "word-count",
    "name": "@examples/word-count",
    "version": "1.0.0",
    "description": "Counts words and finds the common ones.",
    "priority": 1,
    "contexts": ["general"],
    "config": {"MINIMUM": 1},
    "schema": {"type": "object", "properties": {"MINIMUM": {"type": "number"}}},
    "actions": [{
        "name": "COUNT_WORDS",
        "description": "Count the words of a text.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }],
    "providers": [{"name": "RECENT_COUNTS", "description": "The last counts.", "dynamic": True}],
    "evaluators": [{
        "name": "LONG_MESSAGES", "description": "Notices long messages.", "prompt": "Is the message long?",
        "schema": {"type": "object"}, "hasPrepare": True, "hasProcessor": True,
    }],
    "responseHandlerEvaluators": [{"name": "ADD_COUNT", "description": "Adds the count of the message.", "priority": 1}],
    "responseHandlerFieldEvaluators": [{
        "name": "wordCount", "description": "A text to count.", "schema": {"type": "object"}, "hasParse": True, "hasHandle": True,
    }],
    "events": [{"eventName": "text.seen"}],
    "models": [{"modelType": "TEXT_KEYWORDS", "priority": 1}],
    "services": [{"serviceType": "words", "capabilityDescription": "Words of texts.", "methods": ["count", "recent"]}],
    "componentTypes": [{"name": "count", "schema": {"type": "object", "properties": {"words": {"type": "number"}}}}],
    "widgets": [{"id": "counter", "label": "Word count", "slot": "chat-sidebar", "developerOnly": False, "viewKind": "release"}],
    "app": {"displayName": "Word count", "category": "tools", "navTabs": [{"id": "words", "label": "Words", "path": "/words"}]},
    "appBridge": {"hooks": ["handleAppRoutes", "collectLaunchDiagnostics"]},
    "lifecycle": {"hooks": ["init", "applyConfig", "dispose"]},
    "routes": [{"method": "POST", "path": "/words/count", "description": "Counts the words of {text}."}],
    "views": [{
        "id": "counter", "label": "Word count", "viewType": "gui", "bundlePath": BUNDLE_PATH,
        "contentType": "text/javascript", "integrity": INTEGRITY, "viewKind": "release",
    }],
}


class WireError(Exception):
    def __init__(self, code, message, status=200):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def decode_error(message, status=200):
    return WireError("CAPABILITY_DECODE_FAILED", message, status)


def unavailable(message, status=200):
    return WireError("CAPABILITY_UNAVAILABLE", message, status)


def named(params, key, items, item_key="name"):
    name = params.get(key)
    if not isinstance(name, str) or not name.strip():
        raise decode_error(f"{key} must be a non-blank string")
    if not any(item[item_key] == name for item in items):
        raise unavailable(f"the module has no {name}")


def text_of(message):
    text = (message or {}).get("text", "")
    return text if isinstance(text, str) else ""


def action(p):
    named(p, "action", MANIFEST["actions"])
    result = count(p.get("content", {}).get("text", ""))
    return {"text": sentence(result), "values": {"words": result["words"]}, "data": result}


def provider(p):
    named(p, "provider", MANIFEST["providers"])
    with lock:
        recent = list(texts)
    return {"text": "\n".join(map(sentence, recent)) or "nothing was counted yet", "values": {"count": len(recent)}, "data": {"recent": recent}}


def evaluator(phase):
    def run(p):
        named(p, "evaluator", MANIFEST["evaluators"])
        length = len(words_of(text_of(p.get("message"))))
        if phase == "shouldRun":
            return {"shouldRun": length > 20}
        if phase == "prepare":
            return {"prepared": {"words": length}}
        words = (p.get("prepared") or {}).get("words", length) if isinstance(p.get("prepared"), (dict, type(None))) else length
        if phase == "prompt":
            return {"prompt": f"{MANIFEST['evaluators'][0]['prompt']} It has {words} words."}
        return {"result": {"words": words, "long": words > 20}}
    return run


def response_evaluator(phase):
    def run(p):
        named(p, "evaluator", MANIFEST["responseHandlerEvaluators"])
        text = text_of((p.get("context") or {}).get("message"))
        if phase == "shouldRun":
            return {"shouldRun": bool(text)}
        return {"patch": {"wordCount": count(text)} if text else {}}
    return run


def field_evaluator(phase):
    def run(p):
        named(p, "field", MANIFEST["responseHandlerFieldEvaluators"])
        if phase == "shouldRun":
            return {"shouldRun": True}
        if phase == "parse":
            value = p.get("value")
            if isinstance(value, dict) and isinstance(value.get("text"), str):
                return {"value": {"text": value["text"]}}
            return {"softFail": True}
        value = p.get("value")  # "parsed" is the model's whole answer where elizaOS calls
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            return {"effect": {"debug": ["nothing to count"]}}
        return {"effect": {"patch": {"count": count(value["text"])}}}
    return run


def lifecycle(p):
    if p.get("hook") not in MANIFEST["lifecycle"]["hooks"]:
        raise unavailable(f"no hook {p.get('hook')}")
    try:
        minimum = int(p.get("config", {}).get("MINIMUM", settings["minimum"]))
    except (TypeError, ValueError):
        raise decode_error("MINIMUM must be a number") from None
    settings["minimum"] = max(1, minimum)
    if p["hook"] == "dispose":
        with lock:
            texts.clear()
    return {"ok": True}


def event(p):
    named(p, "eventName", MANIFEST["events"], "eventName")
    text = text_of(p.get("payload"))
    if text:
        count(text)
    return {"handled": True}


def model(p):
    named(p, "modelType", MANIFEST["models"], "modelType")
    params = p.get("params")
    prompt = params.get("prompt", "") if isinstance(params, dict) else ""
    return {"result": {"text": ", ".join(count(prompt)["common"])}}


def service(p):
    named(p, "serviceType", MANIFEST["services"], "serviceType")
    args = p.get("args", [])
    if p.get("method") == "recent":
        with lock:
            return {"result": list(texts)}
    if p.get("method") == "count":
        first = args[0] if args else ""
        return {"result": count(first if isinstance(first, str) else json.dumps(first))}
    raise unavailable(f"the service words has no method {p.get('method')}")


def route(p):
    if (p.get("method"), p.get("path")) != ("POST", "/words/count"):
        raise unavailable(f"no route {p.get('method')} {p.get('path')}")
    body = p.get("body")
    text = body.get("text", "") if isinstance(body, dict) else ""
    return {"status": 200, "headers": {"content-type": "application/json"}, "body": count(text)}


def app_bridge(p):
    if p.get("hook") not in MANIFEST["appBridge"]["hooks"]:
        raise unavailable(f"no hook {p.get('hook')}")
    if p["hook"] == "collectLaunchDiagnostics":
        return {"result": [{"level": "info", "message": f"{len(texts)} texts so far"}]}
    # elizaOS passes the whole path, /api/apps/<slug>/words.
    path = (p.get("context") or {}).get("pathname")
    if not isinstance(path, str) or re.sub(r"^/api/apps/[^/]+", "", path) != "/words":
        return {"result": {"handled": False}}
    return {"result": {"handled": True, "status": 200, "body": provider({"provider": "RECENT_COUNTS"})["data"]}}


def asset(p):
    path = p.get("path")
    if not isinstance(path, str) or re.search(r"[?#\\%]|(^|/)\.{1,2}(/|$)", path):
        raise decode_error("that is not an asset path")
    if "/" + path.lstrip("/") != BUNDLE_PATH:
        raise unavailable("no such asset")
    return {"path": BUNDLE_PATH, "contentType": "text/javascript", "bodyBase64": base64.b64encode(BUNDLE).decode(), "integrity": INTEGRITY}


METHODS = {
    "plugin.modules.list": lambda p: {"modules": [MANIFEST]},
    "plugin.action.invoke": action,
    "plugin.provider.get": provider,
    **{f"plugin.evaluator.{phase}": evaluator(phase) for phase in ("shouldRun", "prepare", "prompt", "process")},
    **{f"plugin.responseHandlerEvaluator.{phase}": response_evaluator(phase) for phase in ("shouldRun", "evaluate")},
    **{f"plugin.responseHandlerFieldEvaluator.{phase}": field_evaluator(phase) for phase in ("shouldRun", "parse", "handle")},
    "plugin.lifecycle.call": lifecycle,
    "plugin.event.handle": event,
    "plugin.model.invoke": model,
    "plugin.service.call": service,
    "plugin.route.call": route,
    "plugin.appBridge.call": app_bridge,
    "plugin.asset.get": asset,
}

# ---- The protocol -----------------------------------------------------------

# An optional object that is null is a mistake, not an absent one.
OBJECTS = ("content", "options", "state", "message", "context", "payload", "query", "headers", "config", "parsed")


def invoke(method, params):
    run = METHODS.get(method)
    if run is None:
        raise unavailable(f"unknown method {method}")
    if method != "plugin.modules.list":
        module = params.get("moduleId")
        if not isinstance(module, str) or not re.fullmatch(r"[A-Za-z0-9._-]+", module):
            raise decode_error("moduleId must name a module")
        if module != MANIFEST["id"]:
            raise unavailable(f"no module {module}")
        for key in OBJECTS:
            if key in params and not isinstance(params[key], dict):
                raise decode_error(f"{key} must be an object")
    return run(params)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    token = ""
    timeout = 60

    def log_message(self, *args):
        pass

    def send(self, status, body, content_type="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")  # or the peer would use it again
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fail(self, err, method=None):
        error = {"code": err.code, "message": err.message, "capability": "plugin"}
        if method:
            error["method"] = method
        headers = {"WWW_Authenticate": "Bearer"} if err.status == 401 else {}
        if err.status == 413:
            self.close_connection = True  # what is left of the body is not read
        self.send(err.status, {"ok": False, "error": error}, **headers)

    def authorized(self):
        if not self.token:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())

    def handle_one(self, serve):
        method = None
        try:
            if not self.authorized():
                self.close_connection = True  # a body may be on its way
                raise unavailable("a bearer token is required", 401)
            method = serve(self.path.split("?")[0])
        except WireError as err:
            self.fail(err, method)
        except Exception as err:  # noqa: BLE001 - a handler's fault must not end the server
            print(f"handler failed: {err!r}", file=sys.stderr)
            self.fail(WireError("CAPABILITY_REQUEST_FAILED", "the handler failed"), method)

    def do_GET(self):
        self.handle_one(self.get)

    def do_POST(self):
        self.handle_one(self.post)

    # What has no method here is answered by the base class: in HTML, and to
    # strangers too.
    def do_other(self):
        self.handle_one(self.nothing)

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = do_other

    def nothing(self, path):
        self.close_connection = True  # a body may be on its way
        raise unavailable("nothing is at this path", 404)

    def get(self, path):
        if path == "/v1/capabilities":
            flags = {"fs": False, "pty": False, "git": False, "model": False, "plugin": True}
            return self.send(200, {"environment": "server", "available": True, "capabilities": flags})
        prefix = "/v1/capabilities/assets/"
        if not path.startswith(prefix):
            raise unavailable("nothing is at this path", 404)
        parts = [urllib.parse.unquote(s) for s in path[len(prefix):].split("/")]
        if len(parts) < 2 or any(s == "" or "/" in s for s in parts):
            raise decode_error("malformed asset URL", 400)
        try:
            found = invoke("plugin.asset.get", {"moduleId": parts[0], "path": "/" + "/".join(parts[1:])})
        except WireError as err:
            err.status = 400 if err.code == "CAPABILITY_DECODE_FAILED" else 404
            raise
        self.send(200, base64.b64decode(found["bodyBase64"]), found["contentType"], x_eliza_asset_integrity=found["integrity"])

    def post(self, path):
        if path != "/v1/capabilities/invoke":
            self.close_connection = True
            raise unavailable("nothing is at this path", 404)
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            raise decode_error("malformed Content-Length", 400) from None
        if length < 0:
            raise decode_error("malformed Content-Length", 400)
        if length > MAX_BODY:
            raise decode_error(f"the body is larger than {MAX_BODY} bytes", 413)
        try:
            call = json.loads(self.rfile.read(length))
        except ValueError as err:
            raise decode_error(f"the body is not JSON: {err}", 400) from None
        if not isinstance(call, dict) or not isinstance(call.get("method"), str):
            raise decode_error("the body must be {method, params}", 400)
        params = call.get("params")
        try:
            result = invoke(call["method"], params if isinstance(params, dict) else {})
        except WireError as err:
            return self.fail(err, call["method"])  # a capability's failure: 200 and the envelope
        self.send(200, {"ok": True, "result": result})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-file")
    options = parser.parse_args()
    if options.token_file:
        Handler.token = pathlib.Path(options.token_file).read_text().strip()
        if not Handler.token:
            sys.exit("the token file is empty: it would let everybody in")
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print(json.dumps({"url": url, "baseUrl": url, "moduleIds": [MANIFEST["id"]], "bundlePath": BUNDLE_PATH}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.serve_forever()


if __name__ == "__main__":
    main()
