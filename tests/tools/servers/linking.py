"""
An MCP server whose results name resources; only the standard library, so that it starts in 20 ms.

Speaks the handshake of 2025-11-25 over stdio. Reads any resource but those with `missing` in their URI, and says which server read it. The
argument is its name. With `--plain` it says nothing about itself.
"""

from __future__ import annotations

import json
import sys
from typing import cast

Json = dict[str, object]

NAME = sys.argv[1]
IS_PLAIN = "--plain" in sys.argv
INTERFACE = "ui://board/app.html"
HIDDEN_INTERFACE = "ui://board/hidden.html"
CLIENT: Json = {}
"""The capabilities of the client, as it announced them."""

ANY: Json = {"type": "object"}
URI: Json = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
META: Json = {
    "example.org/view": {"cards": ["a", "b"]},
    "ui": {"resourceUri": INTERFACE},
    "io.modelcontextprotocol/serverInfo": {"name": NAME},
}
TOOLS: list[Json] = [
    {
        "name": "show",
        "inputSchema": ANY,
        "annotations": {"readOnlyHint": True},
        "_meta": {
            "ui": {"resourceUri": INTERFACE, "visibility": ["model"]},
            "ui/resourceUri": INTERFACE,
            "openai/outputTemplate": INTERFACE,
        },
    },
    {"name": f"poll-{NAME}", "inputSchema": ANY, "_meta": {"ui": {"resourceUri": HIDDEN_INTERFACE, "visibility": ["app"]}}},
    {"name": "link", "inputSchema": URI, "_meta": {"example.org/help": "https://example.org/help"}},
    {"name": "embed", "inputSchema": URI},
    {"name": "capabilities", "inputSchema": ANY},
]
RESOURCES: list[Json] = [
    {"uri": INTERFACE, "name": "board", "mimeType": "text/html;profile=mcp-app", "_meta": {"ui": {"prefersBorder": True}}},
    {"uri": f"note://{NAME}", "name": "A note of this server"},
    {"uri": "note://both", "name": "A note that another server has too"},
    {"uri": "https://example.org/listed.pdf", "name": "A listed address"},
]
TEMPLATES: list[Json] = [
    {"uriTemplate": f"{NAME}-item://{{id}}/text", "name": "An item of this server"},
    {"uriTemplate": "item://{id}/text", "name": "An item that another server has too"},
    {"uriTemplate": "{+anything}", "name": "Whatever"},
]
TITLED: Json = {
    "title": f"The {NAME} \x1b[31mboard",
    "description": f"Keeps the cards of {NAME}.\nAnd more.",
    "icons": [{"src": "javascript:alert(1)"}, {"src": f"https://example.org/{NAME}.svg", "mimeType": "image/svg+xml"}],
}


def text(value: object) -> Json:
    """Return a result of one text."""
    return {"content": [{"type": "text", "text": str(value)}]}


def call(name: str, arguments: Json) -> Json:
    """Return a tool's result."""
    uri = arguments.get("uri")
    if name == "link":
        return {"content": [{"type": "resource_link", "name": "A link", "uri": uri, "_meta": {"example.org/size": 3}}]}
    if name == "embed":
        return {"content": [{"type": "resource", "resource": {"uri": uri, "text": "embedded", "_meta": {"example.org/size": 3}}}]}
    if name == "capabilities":
        return text(json.dumps(CLIENT))
    return {**text(f"{name} of {NAME}"), "_meta": META}


def answer(method: str, params: Json) -> Json:
    """Return the result of one request, or its error."""
    if method == "initialize":
        CLIENT.update(cast("Json", params["capabilities"]))
        info: Json = {"name": f"{NAME}-software", "version": "1", **({} if IS_PLAIN else TITLED)}
        capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
        about: Json = {} if IS_PLAIN else {"instructions": f"# {NAME}\n\nMove cards with {NAME}. Then list them.\n" + "More. " * 50}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info, **about}
    if method == "resources/read":
        uri = str(params["uri"])
        if "missing" in uri:
            return {"code": -32002, "message": "Resource not found"}
        return {"contents": [{"uri": uri, "text": f"{NAME} read {uri}", "_meta": {"ui": {"prefersBorder": True}}}], "_meta": META}
    if method == "prompts/get":
        link = {"type": "resource_link", "name": "A link", "uri": "https://example.org/prompt.pdf"}
        return {"messages": [{"role": "user", "content": link}], "_meta": META}
    if method == "completion/complete":
        return {"completion": {"values": [f"{NAME} of {cast('Json', params['ref'])['uri']}"]}}
    results: dict[str, Json] = {
        "tools/list": {"tools": TOOLS},
        "resources/list": {"resources": RESOURCES},
        "resources/templates/list": {"resourceTemplates": TEMPLATES},
        "prompts/list": {"prompts": [{"name": "quote"}]},
        "tools/call": call(str(params.get("name")), cast("Json", params.get("arguments") or {})),
        "ping": {},
    }
    return results.get(method, {"code": -32601, "message": "Method not found"})


for line in sys.stdin:
    message = cast("Json", json.loads(line))
    if "id" in message and "method" in message:
        outcome = answer(str(message["method"]), cast("Json", message.get("params") or {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error" if "code" in outcome else "result": outcome}) + "\n")
        sys.stdout.flush()
