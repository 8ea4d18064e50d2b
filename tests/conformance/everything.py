"""
An MCP server with everything that the official conformance suite tests, in both protocol versions, or only in the older one.

    python -m tests.conformance.everything [--older-era]
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context: TypeAlias = ServerRequestContext[None, Any]
Json: TypeAlias = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
_STATE_KEY = b"of this process"
_ANY_OBJECT: Json = {"type": "object", "properties": {}}


def _text(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def _form(message: str, properties: Json, *required: str) -> Json:
    return {"message": message, "requestedSchema": {"type": "object", "properties": properties, "required": list(required)}}


def _elicit(message: str, field: str, kind: str = "string") -> Json:
    return {"method": "elicitation/create", "params": _form(message, {field: {"type": kind}}, field)}


def _sample(text: str, tokens: int = 100) -> Json:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


_ROOTS: Json = {"method": "roots/list", "params": {}}

_DEFAULTS: Json = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_ENUMS: Json = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"}],
    },
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": [{"const": "value1", "title": "First Choice"}, {"const": "value2", "title": "Second Choice"}]},
    },
}
_FORMS: dict[str, Json] = {
    "test_elicitation": {"username": {"type": "string"}, "email": {"type": "string"}},
    "test_elicitation_sep1034_defaults": _DEFAULTS,
    "test_elicitation_sep1330_enums": _ENUMS,
}
_FIXED_RESULTS: dict[str, Json] = {
    "test_simple_text": _text("This is a simple text response for testing."),
    "test_image_content": {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "test_audio_content": {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]},
    "test_embedded_resource": {
        "content": [
            {"type": "resource", "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "An embedded resource."}}
        ]
    },
    "test_multiple_content_types": {
        "content": [
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {
                "type": "resource",
                "resource": {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'},
            },
        ]
    },
    "test_error_handling": {**_text("This tool intentionally returns an error for testing"), "isError": True},
}
_INPUT_REQUESTS: dict[str, dict[str, Json]] = {
    "test_input_required_result_elicitation": {"user_name": _elicit("What is your name?", "name")},
    "test_input_required_result_sampling": {"capital_question": _sample("What is the capital of France?")},
    "test_input_required_result_list_roots": {"client_roots": _ROOTS},
    "test_input_required_result_request_state": {"confirm": _elicit("Please confirm", "ok", "boolean")},
    "test_input_required_result_tampered_state": {"confirm": _elicit("Please confirm", "ok", "boolean")},
    "test_input_required_result_multiple_inputs": {
        "user_name": _elicit("What is your name?", "name"),
        "greeting": _sample("Generate a greeting", 50),
        "client_roots": _ROOTS,
    },
    "test_input_required_result_capabilities": {"question": _sample("What is the capital of France?"), "name": _elicit("Name?", "name")},
    "test_streaming_elicitation": {"user_name": _elicit("What is your name?", "name")},
}
_STATEFUL = {
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
}
_HEADERS: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "query": {"type": "string"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
    },
}
_SCHEMA_2020_12: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_SCHEMAS: dict[str, Json] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_headers": _HEADERS,
    "json_schema_2020_12_tool": _SCHEMA_2020_12,
}
_TOOLS = [
    *_FIXED_RESULTS,
    *_INPUT_REQUESTS,
    *_FORMS,
    *_SCHEMAS,
    "test_input_required_result_multi_round",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "update_watched_resource",  # not part of the suite, which never changes a resource
]
_PROMPTS: list[Json] = [
    {"name": "test_simple_prompt", "description": "A prompt without arguments"},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [{"name": "arg1", "required": True}, {"name": "arg2", "required": True}],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource in it",
        "arguments": [{"name": "resourceUri", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image in it"},
    {"name": "test_input_required_result_prompt", "description": "A prompt that requires input"},
]
_RESOURCES: dict[str, Json] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched resource content"},
}


class Everything:
    """The handlers."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._extra: list[str] = []
        self._extra_prompts: list[Json] = []
        self.server: Server[Any] = Server("everything", version="1.0.0", on_subscriptions_listen=ListenHandler(self._bus))
        add, page = self.server.add_request_handler, types.PaginatedRequestParams
        add("tools/list", page, self._tools)
        add("tools/call", types.CallToolRequestParams, self._call)
        add("resources/list", page, self._resources)
        add("resources/templates/list", page, self._templates)
        add("resources/read", types.ReadResourceRequestParams, self._read)
        add("resources/subscribe", types.SubscribeRequestParams, self._acknowledge)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._acknowledge)
        add("prompts/list", page, self._prompts)
        add("prompts/get", types.GetPromptRequestParams, self._prompt)
        add("completion/complete", types.CompleteRequestParams, self._complete)
        add("logging/setLevel", types.SetLevelRequestParams, self._acknowledge)

    async def _tools(self, ctx: Context, params: types.PaginatedRequestParams) -> Json:
        names = list(dict.fromkeys([*_TOOLS, *self._extra]))
        return _list_result(
            "tools", [{"name": name, "description": name, "inputSchema": _SCHEMAS.get(name, _ANY_OBJECT)} for name in names]
        )

    async def _resources(self, ctx: Context, params: types.PaginatedRequestParams) -> Json:
        return _list_result(
            "resources", [{"uri": uri, "name": uri, "mimeType": resource["mimeType"]} for uri, resource in _RESOURCES.items()]
        )

    async def _templates(self, ctx: Context, params: types.PaginatedRequestParams) -> Json:
        template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        return _list_result("resourceTemplates", [template])

    async def _prompts(self, ctx: Context, params: types.PaginatedRequestParams) -> Json:
        return _list_result("prompts", [*_PROMPTS, *self._extra_prompts])

    async def _acknowledge(self, ctx: Context, params: object) -> Json:
        return {}

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> Json:
        return _complete_result({"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}})

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> Json:
        uri = str(params.uri)
        if uri in _RESOURCES:
            return _list_result("contents", [{"uri": uri, **_RESOURCES[uri]}])
        if uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.removeprefix("test://template/").removesuffix("/data")
            text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
            return _list_result("contents", [{"uri": uri, "mimeType": "application/json", "text": text}])
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})

    async def _prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Json:
        name, arguments = params.name, params.arguments or {}
        if name == "test_input_required_result_prompt":
            responses = _input_responses(ctx)
            if "user_context" not in responses:
                return _input_required({"user_context": _elicit("What context should the prompt use?", "context")})
            return _messages({"type": "text", "text": f"Context: {responses['user_context']}"})
        if name == "test_prompt_with_arguments":
            return _messages(
                {"type": "text", "text": f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"}
            )
        if name == "test_prompt_with_embedded_resource":
            resource = {"uri": arguments.get("resourceUri", ""), "mimeType": "text/plain", "text": "Embedded resource content for testing."}
            return _messages({"type": "resource", "resource": resource}, {"type": "text", "text": "Please process the resource above."})
        if name == "test_prompt_with_image":
            return _messages({"type": "image", "data": PNG, "mimeType": "image/png"}, {"type": "text", "text": "Please analyze it."})
        return _messages({"type": "text", "text": "This is a simple prompt for testing."})

    async def _call(self, ctx: Context, params: types.CallToolRequestParams) -> Json:
        name, is_modern = params.name, ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if name in _FIXED_RESULTS:
            return _complete_result(_FIXED_RESULTS[name])
        if name in _FORMS or name == "test_sampling":
            return await self._request_input(ctx, name, dict(params.arguments or {}), is_modern=is_modern)
        if name in _INPUT_REQUESTS:
            return await self._require_input(ctx, name, is_modern=is_modern)
        if name == "test_input_required_result_multi_round":
            return _multi_round(ctx)
        if name not in _TOOLS and name not in self._extra:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        if name.startswith("test_trigger_"):
            await self._trigger(ctx, name, is_modern=is_modern)
        if name == "update_watched_resource":
            await self._bus.publish(ResourceUpdated("test://watched-resource"))
            if not is_modern:
                await ctx.session.send_resource_updated("test://watched-resource")
        await self._send_notifications(ctx, name, is_modern=is_modern)
        return _complete_result(_text(f"{name} is done"))

    async def _send_notifications(self, ctx: Context, name: str, *, is_modern: bool) -> None:
        """Send notifications while the call runs."""
        if name == "test_missing_capability":
            _require_sampling(ctx)
        elif name == "test_tool_with_progress":
            for step in (0, 50, 100):
                await ctx.session.report_progress(step, 100, f"step {step}")
                await asyncio.sleep(0.05)
        elif name in {"test_tool_with_logging", "test_logging_tool"}:
            for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                await self._log(ctx, message, is_modern=is_modern)
                await asyncio.sleep(0.05)

    async def _trigger(self, ctx: Context, name: str, *, is_modern: bool) -> None:
        """Change a list, and send the notification."""
        if name == "test_trigger_tool_change":
            self._extra.append(f"test_added_{len(self._extra)}")
            await self._bus.publish(ToolsListChanged())
            if not is_modern:
                await ctx.session.send_tool_list_changed()
        else:
            self._extra_prompts.append({"name": f"test_added_{len(self._extra_prompts)}", "description": "Added"})
            await self._bus.publish(PromptsListChanged())
            if not is_modern:
                await ctx.session.send_prompt_list_changed()

    async def _log(self, ctx: Context, message: str, *, is_modern: bool) -> None:
        meta = cast("Mapping[str, object]", (ctx.params or {}).get("_meta") or {})
        if is_modern and types.LOG_LEVEL_META_KEY not in meta:
            return
        notice = {"method": "notifications/message", "params": {"level": "info", "logger": "everything", "data": message}}
        await ctx.session.send_notification(types.LoggingMessageNotification.model_validate(notice), related_request_id=ctx.request_id)

    async def _request_input(self, ctx: Context, name: str, arguments: Json, *, is_modern: bool) -> Json:
        """Request input from the client, by the rules of its protocol version."""
        if name == "test_sampling":
            request = _sample(str(arguments.get("prompt", "")))
        else:
            fields = _FORMS[name]
            message = str(arguments.get("message", "Please answer"))
            request = {"method": "elicitation/create", "params": _form(message, fields, *(fields if name == "test_elicitation" else ()))}
        if is_modern:
            response = _input_responses(ctx).get("question")
            if response is None:
                return _input_required({"question": request})
        else:
            response = await _request_from_client(ctx, request)
        if name == "test_sampling":
            return _complete_result(_text(f"LLM response: {response.get('content', {}).get('text')}"))
        return _complete_result(
            _text(f"Elicitation completed: action={response.get('action')}, content={json.dumps(response.get('content') or {})}")
        )

    async def _require_input(self, ctx: Context, name: str, *, is_modern: bool) -> Json:
        declared = ctx.session.client_capabilities
        requests = _INPUT_REQUESTS[name]
        if name == "test_input_required_result_capabilities" and (declared is None or declared.elicitation is None):
            requests = {key: request for key, request in requests.items() if request["method"] != "elicitation/create"}
        if not is_modern:
            responses: Json = {key: await _request_from_client(ctx, request) for key, request in requests.items()}
            return _complete_result(_text(f"Answered: {json.dumps(responses)}"))
        if name == "test_streaming_elicitation":
            await ctx.session.report_progress(1, 2, "asking")
        state, responses = (ctx.params or {}).get("requestState"), _input_responses(ctx)
        if state is not None and state != _sign_state(name):
            raise MCPError(types.INVALID_PARAMS, "The requestState is invalid")
        if any(not isinstance(responses.get(key), dict) or not responses[key] for key in requests):
            return _input_required(requests, _sign_state(name) if name in _STATEFUL else None)
        return _complete_result(_text(f"state-ok: {json.dumps({key: responses[key] for key in requests})}"))


def _require_sampling(ctx: Context) -> None:
    declared = ctx.session.client_capabilities
    if declared is None or declared.sampling is None:
        data: Json = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client must support sampling", data)


def _multi_round(ctx: Context) -> Json:
    state, responses = (ctx.params or {}).get("requestState"), _input_responses(ctx)
    if state == _sign_state("round 1") and "step1" in responses:
        return _input_required({"step2": _elicit("Step 2: What is your favorite color?", "color")}, _sign_state("round 2"))
    if state == _sign_state("round 2") and "step2" in responses:
        return _complete_result(_text(f"Done: {json.dumps(responses)}"))
    return _input_required({"step1": _elicit("Step 1: What is your name?", "name")}, _sign_state("round 1"))


def _sign_state(name: str) -> str:
    return f"{name}.{hmac.new(_STATE_KEY, name.encode(), hashlib.sha256).hexdigest()}"


def _input_responses(ctx: Context) -> Json:
    return cast("Json", (ctx.params or {}).get("inputResponses") or {})


def _input_required(requests: dict[str, Json], state: str | None = None) -> Json:
    wanted: Json = {"resultType": "input_required", "inputRequests": requests}
    return wanted if state is None else {**wanted, "requestState": state}


def _complete_result(result: Json) -> Json:
    return {"resultType": "complete", **result}


def _list_result(field: str, items: list[Json]) -> Json:
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", field: items}


def _messages(*contents: Json) -> Json:
    return _complete_result({"messages": [{"role": "user", "content": content} for content in contents]})


async def _request_from_client(ctx: Context, request: Json) -> Json:
    types_by_method: dict[str, tuple[type[Any], type[Any]]] = {
        "elicitation/create": (types.ElicitRequest, types.ElicitResult),
        "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
        "roots/list": (types.ListRootsRequest, types.ListRootsResult),
    }
    request_type, result_type = types_by_method[request["method"]]
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    response = await ctx.session.send_request(request_type.model_validate(request), result_type, metadata=metadata)
    return cast("Json", response.model_dump(mode="json", by_alias=True, exclude_none=True))


async def main(*, is_older: bool) -> None:
    """Serve over standard input and output."""
    server = Everything().server
    options = server.create_initialization_options(NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True))
    async with stdio_server() as (read_stream, write_stream):
        if is_older:
            await serve_loop(server, read_stream, write_stream, lifespan_state=None, init_options=options)
        else:
            await server.run(read_stream, write_stream, options)


if __name__ == "__main__":
    asyncio.run(main(is_older="--older-era" in sys.argv))
