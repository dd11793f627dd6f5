"""A node with some functions.

    python3 node.py URL --node-token-file FILE [--id ID] [--dir FOLDER]

It prints one JSON line when it has joined. Then, from elsewhere:

    junctor call ID count '{"to":5}' --stream
"""

import argparse
import asyncio
import json
import os
import pathlib
import time
from typing import Annotated

from junctor import Context, Node

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("url")
parser.add_argument("--node-token-file", type=pathlib.Path)
parser.add_argument("--id", default="")
parser.add_argument("--dir")
options = parser.parse_args()

node = Node(
    options.url, id=options.id, directory=options.dir, labels=["example"],
    token=options.node_token_file.read_text() if options.node_token_file else "",
    joined=lambda about: print(json.dumps({**about, "pid": os.getpid()}), flush=True),
)


@node.function(effect="read")
async def greet(name: Annotated[str, "Who is greeted"] = "you") -> str:
    """Greet a person."""
    return f"hello, {name}"


@node.function(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


waiters: set[str] = set()  # the callers of wait


@node.function(effect="read")
async def wait(context: Context, seconds: float = 1) -> str:
    """Wait so many seconds. A call that is cancelled raises asyncio.CancelledError here."""
    waiters.add(context.call_id)
    try:
        context.progress(0.5, "half of it")
        await asyncio.sleep(seconds)
    finally:
        waiters.discard(context.call_id)
    return "done"


@node.function(effect="read")
def waiting() -> int:
    """Return how many callers wait."""
    return len(waiters)


@node.function(effect="write")
def define(name: str) -> list[str]:
    """Add a function while the node runs."""
    node.add(lambda: name, name=name, effect="read", replace=True)
    return node.functions


@node.function
async def ask(action: str, input: dict) -> object:
    """Use a capability of the gateway, as the node."""
    return await node.call(action, input)


@node.function(effect="read")
async def count(to: int = 10, size: int = 0):
    """Count up, one by one."""
    for n in range(1, to + 1):
        yield {"n": n, "pad": "x" * size} if size else n


@node.function(effect="read", name="count.slowly")
def count_slowly(to: int = 3):
    """Count up in a thread."""
    for n in range(1, to + 1):
        time.sleep(0.01)
        yield n


@node.function(effect="read")
def fail():
    """Fail."""
    raise RuntimeError("this always fails")


@node.function(effect="read")
def large(size: int) -> str:
    """Return a text of so many characters."""
    return "x" * size


@node.function(effect="read")
def data() -> bytes:
    """Return bytes."""
    return b"\x00\xff"


@node.function(effect="read")
async def nothing():
    """Return nothing, for measurements."""


node.run()
