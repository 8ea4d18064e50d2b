"""The tools of the MCP server `content`: their descriptions, published arguments and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson

from rookery.kernel.http.operation_tools import ServerDeclaration, drop_empty, is_empty
from rookery.kernel.http.operations import ToolDeclaration

SERVER = ServerDeclaration(
    id="content",
    name="Content generation",
    tagline="Texts and JSON from the workspace's language model.",
    description=(
        "Generate a text, or JSON that matches a schema, with the language model of this workspace: from a prompt, or from one of the "
        "workspace's prompt templates. Every generation is stored with its tokens and its cost."
    ),
)

_GENERATE_TOOL, _GET_TOOL = "content_generate", "content_get"

GENERATE = ToolDeclaration(
    name=_GENERATE_TOOL,
    description="Generate a text with another language model, or JSON with `schema`. Send exactly one of `prompt` and `template`.",
    effect="creates",
    arguments={
        "prompt": "",
        "template": "A slug.",
        "variables": "",
        "schema": "JSON schema of the answer.",
        "model": "",
        "max_tokens": "Default 1024.",
        "score": "",
    },
    fixed={"mode": "sync"},
)
GET = ToolDeclaration(
    name=_GET_TOOL,
    description="Show a generation with its status and its output.",
    effect="reads",
    arguments={"generation_id": ""},
)


def compact_output(tool: str, output: Mapping[str, object]) -> Mapping[str, object]:
    """Return *output* without fields that carry no information. Null in a generated JSON is a part of the answer."""
    del tool
    answer = cast("Mapping[str, object]", output.get("output") or {})
    others = {name: drop_empty(value) for name, value in output.items() if name != "output"}
    fields = {**others, "output": {name: value for name, value in answer.items() if value is not None}}
    return {name: value for name, value in fields.items() if not is_empty(value)}


def render_text(tool: str, output: Mapping[str, object]) -> str:
    """Return the text of a result for a model: the answer, or the status of a generation without one."""
    answer = cast("Mapping[str, object] | None", output.get("output"))
    if answer is not None and answer.get("text"):
        return str(answer["text"])
    if tool == _GET_TOOL and "status" in output:
        error = cast("Mapping[str, object] | None", output.get("error"))
        return f"{output['status']}: {error['message']}" if error else str(output["status"])
    return orjson.dumps(output).decode()
