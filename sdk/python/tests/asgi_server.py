"""A small ASGI server for the tests, over http.server: asgi_server.py FILE:NAME [TOKEN]."""

import asyncio
import contextlib
import importlib.util
import json
import pathlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def load(path):
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    spec.loader.exec_module(module)
    return module


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    app = None

    def log_message(self, *args):
        pass

    def handle_any(self):
        path, _, query = self.path.partition("?")
        scope = {"type": "http", "method": self.command, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
                 "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in self.headers.items()]}
        left = int(self.headers.get("Content-Length") or 0)
        sent = []

        async def receive():
            nonlocal left
            piece = self.rfile.read(min(left, 1 << 16))
            left -= len(piece)
            return {"type": "http.request", "body": piece, "more_body": left > 0}

        async def send(message):
            sent.append(message)

        asyncio.run(type(self).app(scope, receive, send))
        if left and left < 1 << 20:
            self.rfile.read(left)
            left = 0
        self.close_connection = left > 0
        self.send_response_only(sent[0]["status"])
        for name, value in sent[0]["headers"]:
            self.send_header(name.decode(), value.decode())
        self.end_headers()
        self.wfile.write(sent[1]["body"])

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = handle_any


if __name__ == "__main__":
    file, _, name = sys.argv[1].partition(":")
    app = getattr(load(pathlib.Path(file)), name)
    if len(sys.argv) > 2:
        app.token = pathlib.Path(sys.argv[2]).read_text()
    Handler.app = staticmethod(app)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print(json.dumps({"url": url, "baseUrl": url}), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
