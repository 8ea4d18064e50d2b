"""
The OpenAPI 3.0.3 document of the whole API, generated from the mounted routes.

Parameters, bodies, responses, scopes and errors come from the rows of the route tables and from the decorators of the handlers, so that
nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel

from rookery.kernel.events import EventType
from rookery.kernel.http.operations import BYTES_PER_MIB, FORM_MEDIA_TYPE
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.components import Components, Mode, handler_description
from rookery.reference.downgrade import Schema
from rookery.reference.examples import Examples, add_example
from rookery.reference.operation_names import DocumentedRoute, document_path, documented_routes, list_path_parameters
from rookery.reference.parameters import header_components as request_headers
from rookery.reference.parameters import header_references, path_parameter, query_parameter
from rookery.reference.parts import drop_unused
from rookery.reference.response_docs import ERROR_SCHEMA, JSON_MEDIA_TYPE, ResponseDocs, header_components

_TAG_DESCRIPTIONS = {
    "Memory": "Store, recall, search and manage what agents learn.",
    "Execution": "Call tools and read resources.",
    "Discovery": "List the tool servers, and the tools, resources and prompts of each.",
    "Plans": "Plans with their phases and tasks, and the claiming of tasks.",
    "Sessions": "The sessions of agents, their events and their hand-offs.",
    "Templates": "Templates that plans are created from.",
    "Content": "Generate content with a language model: single answers, streams, batches, prompt templates, budgets and usage.",
    "MCP": "The Model Context Protocol endpoint: every permitted tool for any MCP client.",
    "Tool servers": "Add, change, check and remove tool servers, and log in where they require it.",
    "Analytics": "Number, errors and duration of tool calls.",
    "Keys": "API keys and agent keys, their permissions, limits and usage.",
    "Scoring": "AI detection and sycophancy of texts, which are not stored.",
    "Usage": "Calls, tokens and cost by workspace, key, agent, model and tool.",
    "Webhooks": "Signed requests to other systems when events occur.",
    "Events": "The types of events.",
    "Notifications": "Subscribers, campaigns, and the delivery to each channel.",
    "Workspaces": "Tenants, for operators.",
    "Audit": "The log of changes to keys and workspaces.",
    "Documentation": "This document and its viewers.",
    "Operation": "Health and metrics of the server.",
}
_TAG_GROUPS = {
    "Memory": ("Memory",),
    "Tools": ("Execution", "Discovery", "MCP", "Tool servers", "Analytics"),
    "Agent work": ("Plans", "Sessions", "Templates"),
    "Notifications": ("Notifications",),
    "Content": ("Content",),
    "Scoring": ("Scoring",),
    "Platform": ("Keys", "Usage", "Webhooks", "Events", "Workspaces", "Audit", "Documentation", "Operation"),
}
"""Groups of tags, for viewers that support `x-tagGroups`."""


def build_tags(used_tags: Iterable[str]) -> list[Schema]:
    """Return *used_tags* in the order of `_TAG_DESCRIPTIONS`. Tags without a description come last."""
    names = set(used_tags)
    known_names = [name for name in _TAG_DESCRIPTIONS if name in names]
    return [
        {"name": name, "description": _TAG_DESCRIPTIONS.get(name, name)}
        for name in [*known_names, *sorted(names - _TAG_DESCRIPTIONS.keys())]
    ]


def build_tag_groups(used_tags: Iterable[str]) -> list[Schema]:
    """Return the groups of *used_tags*. Tags without a group are in the group Other."""
    names = set(used_tags)
    grouped = {group: [name for name in group_names if name in names] for group, group_names in _TAG_GROUPS.items()}
    grouped["Other"] = sorted(names - _TAG_DESCRIPTIONS.keys())
    return [{"name": group, "tags": group_names} for group, group_names in grouped.items() if group_names]


API_TITLE = "Rookery API"
"""The title of the API. Generators derive names from it: openapi-python-client creates `rookery_api_client`, beside `rookery_client`."""

API_VERSION = "1.0.0"
"""The version of the API."""

_SECURITY_SCHEMES: Mapping[str, Schema] = {
    "bearerAuth": {
        "type": "http",
        "scheme": "bearer",
        "description": (
            "An API key (`sk_live_…`, `sk_test_…`) or an agent key (`ak_…`). Also accepted by HTTP Basic: the key as the user name, and no "
            "password."
        ),
    },
    "apiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same keys in a header of their own."},
}
"""
The ways to send a key, preferred first.

HTTP Basic is not among them: clients of hey-api 0.99.0 apply every scheme of an operation with the same secret, and the last one to write
Authorization wins.
"""
_WEBHOOK_PAYLOAD_SCHEMA: Schema = {
    "title": "WebhookPayload",
    "type": "object",
    "description": "The body of a webhook delivery.",
    "required": ["id", "type", "created_at", "workspace_id", "data"],
    "properties": {
        "id": {"type": "string", "description": "The id of the event, the same in every attempt and resend."},
        "type": {"type": "string"},
        "created_at": {"type": "string", "format": "date-time"},
        "workspace_id": {"type": "integer"},
        "data": {"type": "object", "additionalProperties": True},
    },
}


def build_document(
    endpoints: Sequence[RouteEndpoint],
    *,
    public_url: Callable[[str], str],
    events: Sequence[EventType] = (),
    examples: Examples = MappingProxyType({}),
) -> Schema:
    """
    Return the document of *endpoints*, without hidden ones.

    Args:
        public_url: Returns the public scheme and host of a path.

    Raises:
        ValueError: Two different operations have the same operation id.
    """
    documented = documented_routes(endpoints)
    components = Components(_list_models(documented))
    responses = ResponseDocs(components)
    home = public_url("/api/v1")
    paths: dict[str, Schema] = {}
    for documented_route in documented:
        endpoint = documented_route.endpoint
        operation = _Operation(documented_route, components, public_url).build(responses)
        item = paths.setdefault(document_path(endpoint.path), {})
        if (host := public_url(endpoint.path)) != home:
            item["servers"] = [{"url": host}]
        add_example(operation, documented_route.all_names, examples, components.schemas)
        item[endpoint.route.method.lower()] = operation
    used_tags = [name for documented_route in documented for name in documented_route.endpoint.route.tags]
    document: Schema = {
        "openapi": "3.0.3",
        "info": {
            "title": API_TITLE,
            "version": API_VERSION,
            "description": load_introduction(),
            "contact": {"name": "The operator of this server", "url": home},
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "servers": [{"url": home}],
        "security": [{name: []} for name in _SECURITY_SCHEMES],
        "tags": build_tags(used_tags),
        "x-tagGroups": build_tag_groups(used_tags),
        "paths": paths,
        "components": {
            "securitySchemes": {name: dict(scheme) for name, scheme in _SECURITY_SCHEMES.items()},
            "parameters": request_headers(),
            "headers": header_components(),
            "responses": responses.shared_responses,
            "schemas": {"Error": ERROR_SCHEMA, **responses.error_formats, "WebhookPayload": _WEBHOOK_PAYLOAD_SCHEMA, **components.schemas},
        },
    }
    if events:
        document["x-webhooks"] = {event.name: _webhook_operation(event) for event in events}
    return drop_unused(document)


def load_introduction() -> str:
    """Return the introduction of the document, in Markdown."""
    return (resources.files("rookery.reference") / "introduction.md").read_text(encoding="utf-8").strip()


def _list_models(documented: Sequence[DocumentedRoute]) -> list[tuple[type[BaseModel], Mode]]:
    models = list[tuple[type[BaseModel], Mode]]()
    for documented_route in documented:
        inputs = (documented_route.endpoint.body, documented_route.endpoint.query)
        outputs = (
            documented_route.endpoint.route.response_model,
            *(response.model for response in documented_route.endpoint.route.responses.values()),
        )
        models.extend((model, "validation") for model in inputs if model is not None)
        models.extend((model, "serialization") for model in outputs if model is not None)
    return models


class _Operation:
    """One operation of the document."""

    def __init__(self, documented: DocumentedRoute, components: Components, public_url: Callable[[str], str]) -> None:
        self._route = documented
        self._endpoint = documented.endpoint
        self._components = components
        self._public_url = public_url

    def build(self, responses: ResponseDocs) -> Schema:
        route = self._endpoint.route
        operation: Schema = {
            "operationId": self._route.operation_id,
            "summary": route.summary,
            "description": self._description(),
            "tags": list(route.tags),
        }
        if parameters := self._parameters():
            operation["parameters"] = parameters
        if (body := self._body()) is not None:
            operation["requestBody"] = body
        operation["responses"] = responses.build_responses(self._endpoint)
        operation["security"] = self._security()
        if route.required_scope is not None:
            operation["x-required-scope"] = route.required_scope
        if route.repeatable:
            operation["x-repeatable"] = True
        if self._route.aliases:
            operation["x-aliases"] = [document_path(path) for path in self._route.aliases]
        return operation

    def _description(self) -> str:
        route = self._endpoint.route
        notes = list[str]()
        if route.public and route.optional_auth:
            notes.append("No key is required. With a key, the response includes what the key may see.")
        elif route.public:
            notes.append("No key is required.")
        elif route.required_scope is None:
            notes.append("Requires a key with any scope.")
        else:
            notes.append(f"Requires the scope `{route.required_scope}`.")
        if not route.rate_limited:
            notes.append("Does not count against the key's rate limit.")
        if self._endpoint.body is not None:
            notes.append(f"The body has at most {_format_size(route.max_body_bytes)}.")
        if self._route.aliases:
            notes.append(f"Also served at {' and '.join(self._format_alias(path) for path in self._route.aliases)}.")
        return "\n\n".join(part for part in (handler_description(route.handler.__doc__), route.description, " ".join(notes)) if part)

    def _format_alias(self, path: str) -> str:
        """Return an alias in Markdown, with its host if that differs from the host of the operation."""
        host = self._public_url(path)
        return f"`{'' if host == self._public_url(self._endpoint.path) else host}{document_path(path)}`"

    def _parameters(self) -> list[Schema]:
        route = self._endpoint.route
        parameters = [path_parameter(name) for name in list_path_parameters(self._endpoint.path)]
        if (model := self._endpoint.query) is not None:
            fields, required = self._components.fields(model, "validation")
            parameters += [query_parameter(name, schema, is_required=name in required) for name, schema in fields.items()]
        reads = [
            *(() if route.public and not route.optional_auth else ("X-Workspace-ID",)),
            *(("Idempotency-Key",) if route.idempotent else ()),
            *route.all_request_headers,
        ]
        return parameters + header_references(list(dict.fromkeys(reads)))

    def _body(self) -> Schema | None:
        if (model := self._endpoint.body) is not None:
            schema = self._components.reference(model, "validation")
            return {"required": not self._endpoint.is_body_optional, "content": {JSON_MEDIA_TYPE: {"schema": schema}}}
        if kinds := self._endpoint.route.request_media_types:
            schemas = {kind: _input_schema(kind, self._endpoint.route.form_fields) for kind in kinds}
            return {"required": True, "content": {kind: {"schema": schema} for kind, schema in schemas.items()}}
        return None

    def _security(self) -> list[Schema]:
        route = self._endpoint.route
        if route.security is not None:
            return [{name: []} for name in route.security]
        if route.public and not route.optional_auth:
            return []
        return [*([{}] if route.public else []), *({name: []} for name in _SECURITY_SCHEMES)]


def _input_schema(kind: str, form_fields: Mapping[str, str]) -> Schema:
    """Return the schema of a body without a model. Other content than an object or a form is a stream for generators."""
    if kind == FORM_MEDIA_TYPE:
        return {"type": "object", "properties": {name: {"type": "string", "description": text} for name, text in form_fields.items()}}
    return {"type": "object"} if kind == JSON_MEDIA_TYPE else {"type": "string", "format": "binary"}


def _format_size(count: int) -> str:
    return f"{count // BYTES_PER_MIB} MiB" if count >= BYTES_PER_MIB else f"{count // 1024} KiB"


def _webhook_operation(event: EventType) -> Schema:
    return {
        "post": {
            "operationId": f"receive_{event.name.replace('.', '_')}",
            "summary": event.description,
            "description": (
                f"A signed request from Rookery to the URL of an endpoint that subscribes to this event. `data`: {event.data}."
            ),
            "requestBody": {"required": True, "content": {JSON_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/WebhookPayload"}}}},
            "responses": {"2XX": {"description": "Received."}},
        }
    }
