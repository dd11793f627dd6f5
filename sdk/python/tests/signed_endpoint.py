"""The example endpoint with a signed manifest: signed_endpoint.py KEY TOKEN."""

import pathlib
import sys

from tests.asgi_server import load

endpoint = load(pathlib.Path(__file__).parents[1] / "examples" / "endpoint.py").endpoint
endpoint.token = pathlib.Path(sys.argv[2]).read_text()
endpoint.sign(pathlib.Path(sys.argv[1]).read_bytes(), issuer="lab")
endpoint.serve()
