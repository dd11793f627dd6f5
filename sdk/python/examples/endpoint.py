"""An endpoint with every surface of the protocol.

    python3 endpoint.py [--port 0] [--token-file FILE]

It prints one JSON line with its URL when it is ready. Then, from elsewhere:

    junctor connect URL
    junctor invoke word-count:action:COUNT_WORDS '{"text":"how many words are these"}'
"""

import argparse
import collections
import pathlib
import re
from dataclasses import dataclass
from typing import Annotated

from junctor import ActionResult, Endpoint, Error, FieldEffect, RouteRequest

endpoint = Endpoint(
    "word-count", name="@examples/word-count", version="1.0.0", description="Counts words and finds the common ones.", priority=1,
    contexts=["general"], config={"MINIMUM": 1}, schema={"type": "object", "properties": {"MINIMUM": {"type": "number"}}},
)
texts = collections.deque(maxlen=50)  # the last counts, newest last
settings = {"minimum": 1}


@dataclass
class Count:
    words: int
    distinct: int
    common: list[str]

    def __str__(self):
        return f"{self.words} words, {self.distinct} of them different"


def count(text: str) -> Count:
    words = [w for w in re.findall(r"[^\W\d_]+", text.lower()) if len(w) >= settings["minimum"]]
    result = Count(len(words), len(set(words)), [w for w, _ in collections.Counter(words).most_common(3)])
    texts.append(result)
    return result


@endpoint.action
def count_words(text: Annotated[str, "The text whose words are counted"]):
    """Count the words of a text."""
    found = count(text)
    return ActionResult(str(found), values={"words": found.words}, data={"common": found.common})


@endpoint.provider(dynamic=True)
async def recent_counts(state):
    """The last counts."""
    return "\n".join(map(str, texts)) or "nothing was counted yet"


long_messages = endpoint.evaluator("LONG_MESSAGES", description="Notices long messages.", prompt="Is the message long?",
    schema={"type": "object"})


@long_messages.should_run
def _(call):
    return len(call.message.get("text", "").split()) > 20


@long_messages.prepare
def _(call):
    return {"words": len(call.message.get("text", "").split())}


@long_messages.process
def _(call):
    return {"long": (call.prepared or {}).get("words", 0) > 20}


@endpoint.response_evaluator("ADD_COUNT", description="Adds the count of the message.", priority=1).evaluate
def add_count(context):
    return {"wordCount": len(str(context.get("message", "")).split())}


word_count = endpoint.field_evaluator("wordCount", description="A text to count.", schema={"type": "object"})


@word_count.parse
def _(call):
    return call.value if isinstance(call.value, dict) else None


@word_count.handle
def _(call):
    text = call.value.get("text") if isinstance(call.value, dict) else None
    return FieldEffect(patch={"count": count(text).words}) if isinstance(text, str) else FieldEffect(debug=["nothing to count"])


@endpoint.event("text.seen")
def text_seen(payload):
    if isinstance(payload.get("text"), str):
        count(payload["text"])


@endpoint.model("TEXT_KEYWORDS", priority=1)
def keywords(params):
    return {"text": ", ".join(count(str((params or {}).get("prompt", ""))).common)}


@endpoint.service("words", description="Words of texts.", method="count")
def service_count(text):
    return count(str(text))


@endpoint.service("words")
def recent():
    return list(texts)


@endpoint.route("POST", "/words/count")
def route_count(request: RouteRequest):
    """Counts the words of {text}."""
    return count(str((request.body or {}).get("text", "")))


@endpoint.lifecycle("init")
@endpoint.lifecycle("applyConfig")
def configure(config, context):
    try:
        settings["minimum"] = max(1, int(config.get("MINIMUM", settings["minimum"])))
    except ValueError:
        raise Error("invalid_input", "MINIMUM must be a number") from None


@endpoint.lifecycle("dispose")
def dispose(config, context):
    texts.clear()


@endpoint.app_bridge("collectLaunchDiagnostics")
def diagnostics(context):
    return [{"level": "info", "message": f"{len(texts)} texts so far"}]


@endpoint.app_bridge("handleAppRoutes")
def app_routes(context):
    path = context.get("pathname")
    handled = isinstance(path, str) and re.sub(r"^/api/apps/[^/]+", "", path) == "/words"
    return {"handled": True, "status": 200, "body": list(texts)} if handled else {"handled": False}


endpoint.component_type("count", {"type": "object", "properties": {"words": {"type": "number"}}})
endpoint.widget("counter", label="Word count", slot="chat-sidebar")
endpoint.app(display_name="Word count", category="tools", nav_tabs=[{"id": "words", "label": "Words", "path": "/words"}])
endpoint.view("counter", label="Word count", path="/assets/word-count.js",
              bundle=b"export default () => document.createTextNode('word count');\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-file", type=pathlib.Path)
    options = parser.parse_args()
    if options.token_file:
        endpoint.token = options.token_file.read_text()
        if not endpoint.token:
            parser.error("the token file is empty, which would accept every caller")
    endpoint.serve(port=options.port)
