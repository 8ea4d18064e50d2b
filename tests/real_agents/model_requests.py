"""Requests to a language model and answers of it, in the four protocols that agents speak."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

Json = dict[str, object]

_OBSERVATION = re.compile(r"(?:^|\n)(?=(?:Observation|Error):\n)")


@dataclass(kw_only=True)
class ModelRequest:
    """
    The content of a request.

    Attributes:
        tools: The names of the tools; the members of a namespace are `NAMESPACE/NAME`.
        tool_characters: The size of the declarations of all tools as JSON.
        results: The results of tools so far, as the model gets them.
        text: The whole request, in which names and marks are looked for.
    """

    tools: list[str]
    tool_characters: int
    results: list[str]
    text: str
    streams: bool = False


@dataclass(kw_only=True)
class ModelReply:
    """The answer: a text, or a call of a tool."""

    text: str = ""
    tool: str | None = None
    arguments: Json = field(default_factory=dict[str, object])
    number: int = 0


def read_request(path: str, body: Json) -> ModelRequest:
    """Return what a request gives to the model; its protocol follows from the path."""
    tools = list[str]()
    results = list[str]()
    if "enerateContent" in path:
        declared = [one for group in _objects(body.get("tools")) for one in _objects(group.get("functionDeclarations"))]
        tools = [str(one["name"]) for one in declared]
        parts = [part for content in _objects(body.get("contents")) for part in _objects(content.get("parts"))]
        answers = [cast("Json", part["functionResponse"]).get("response") for part in parts if "functionResponse" in part]
        results = [json.dumps(one, ensure_ascii=False) for one in answers]
    elif path.endswith("/messages"):
        tools = [str(one["name"]) for one in _objects(body.get("tools"))]
        blocks = [block for message in _objects(body.get("messages")) for block in _objects(message.get("content"))]
        results = [_join(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
    elif path.endswith("/responses"):
        tools = list(_list_response_tools(body.get("tools")))
        kinds = {"function_call_output", "custom_tool_call_output"}
        results = [_join(item.get("output")) for item in _objects(body.get("input")) if item.get("type") in kinds]
    else:
        tools = [str(cast("Json", one["function"])["name"]) for one in _objects(body.get("tools")) if "function" in one]
        messages = _objects(body.get("messages"))
        results = [text for one in messages for text in _list_results(one)]
    streams = body.get("stream") is True or "streamGenerateContent" in path
    size = len(json.dumps(body.get("tools") or [], ensure_ascii=False))
    return ModelRequest(
        tools=tools, tool_characters=size, results=results, text=json.dumps(body, ensure_ascii=False).replace("\\n", "\n"), streams=streams
    )


def write_reply(path: str, reply: ModelReply, *, streams: bool) -> tuple[str, bytes]:
    """Return the media type and the body of an answer, in the protocol of the path."""
    if "enerateContent" in path:
        body = _build_gemini(reply)
        return _write_stream([body]) if streams else _write_json(body)
    if path.endswith("/messages"):
        message = _build_message(reply)
        return _write_stream(_split_message(message, reply), named=True) if streams else _write_json(message)
    if path.endswith("/responses"):
        response = _build_response(reply)
        return _write_stream(_split_response(response), named=True) if streams else _write_json(response)
    return _write_stream(_split_completion(reply), ends_with="[DONE]") if streams else _write_json(_build_completion(reply))


def _objects(value: object) -> list[Json]:
    return [cast("Json", one) for one in cast("list[object]", value) if isinstance(one, dict)] if isinstance(value, list) else []


def _join(content: object) -> str:
    """Return the text of the content of a result; what is no text is written as JSON."""
    if isinstance(content, str):
        return content
    return "\n".join(str(one["text"]) if "text" in one else json.dumps(one, ensure_ascii=False)[:200] for one in _objects(content))


def _list_results(message: Json) -> list[str]:
    """Return the results of tools in a message; smolagents sends them in those of the user, several in one."""
    text = _join(message.get("content"))
    if message.get("role") == "tool":
        return [text]
    parts = _OBSERVATION.split(text) if message.get("role") == "user" else []
    return [part for part in parts if part.startswith(("Observation:", "Error:"))]


def _list_response_tools(tools: object) -> Iterator[str]:
    for tool in _objects(tools):
        if tool.get("type") == "namespace":
            yield from (f"{tool['name']}/{one['name']}" for one in _objects(tool.get("tools")))
        else:
            yield str(tool.get("name", tool.get("type")))


def _write_json(body: Json) -> tuple[str, bytes]:
    return "application/json", json.dumps(body, ensure_ascii=False).encode()


def _write_stream(events: list[Json], *, named: bool = False, ends_with: str = "") -> tuple[str, bytes]:
    names = [f"event: {event['type']}\n" if named else "" for event in events]
    lines = [f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n" for name, event in zip(names, events, strict=True)]
    return "text/event-stream", "".join([*lines, f"data: {ends_with}\n\n" if ends_with else ""]).encode()


def _build_gemini(reply: ModelReply) -> Json:
    part: Json = {"text": reply.text} if reply.tool is None else {"functionCall": {"name": reply.tool, "args": reply.arguments}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


def _build_message(reply: ModelReply) -> Json:
    block: Json = {"type": "text", "text": reply.text}
    if reply.tool is not None:
        block = {"type": "tool_use", "id": f"toolu_{reply.number}", "name": reply.tool, "input": reply.arguments}
    usage = {"input_tokens": 10, "output_tokens": 5}
    reason = "end_turn" if reply.tool is None else "tool_use"
    head = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant", "model": "scripted"}
    return {**head, "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}


def _split_message(message: Json, reply: ModelReply) -> list[Json]:
    block = _objects(message["content"])[0]
    start, delta = {**block, "text": ""}, {"type": "text_delta", "text": reply.text}
    if reply.tool is not None:
        start, delta = {**block, "input": dict[str, object]()}, {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def _build_response(reply: ModelReply) -> Json:
    content = {"type": "output_text", "text": reply.text, "annotations": list[object]()}
    item: Json = {"type": "message", "id": f"msg_{reply.number}", "status": "completed", "role": "assistant", "content": [content]}
    if reply.tool is not None:
        namespace, _, name = reply.tool.rpartition("/")
        call = {"type": "function_call", "id": f"fc_{reply.number}", "call_id": f"call_{reply.number}", "status": "completed"}
        item = {**call, "name": name, "arguments": json.dumps(reply.arguments), **({"namespace": namespace} if namespace else {})}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": 1_764_000_000,
        "status": "completed",
        "model": "scripted",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": list[object](),
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, **details},
    }


def _split_response(response: Json) -> list[Json]:
    item = _objects(response["output"])[0]
    events: list[Json] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": list[object]()}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    if item["type"] == "message":
        text = _objects(item["content"])[0]["text"]
        place: Json = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events.append({"type": "response.output_text.delta", **place, "delta": text})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    return [*events, {"type": "response.completed", "response": response}]


def _build_completion(reply: ModelReply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.tool is not None:
        message["tool_calls"] = [_build_call(reply)]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if reply.tool is None else "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    head = {"id": f"chatcmpl-{reply.number}", "object": "chat.completion", "created": 1_764_000_000, "model": "scripted"}
    return {**head, "choices": [choice], "usage": usage}


def _build_call(reply: ModelReply) -> Json:
    function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
    return {"id": f"call_{reply.number}", "type": "function", "function": function}


def _split_completion(reply: ModelReply) -> list[Json]:
    delta: Json = {"role": "assistant", "content": reply.text}
    if reply.tool is not None:
        delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **_build_call(reply)}]}
    head = {"id": f"chatcmpl-{reply.number}", "object": "chat.completion.chunk", "created": 1_764_000_000, "model": "scripted"}
    reason = "stop" if reply.tool is None else "tool_calls"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": dict[str, object](), "finish_reason": reason}]},
        {**head, "choices": list[object](), "usage": usage},
    ]
