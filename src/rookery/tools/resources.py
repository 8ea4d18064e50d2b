"""Resources, prompts and argument completion: the features of upstreams other than tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypedDict, cast

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.call_options import DEFAULT_CALL_OPTIONS, CallOptions
from rookery.tools.calling.execution import send_with_timeout
from rookery.tools.calling.results import list_links, strip_protocol_meta
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import (
    ConnectFailed,
    ConnectionLost,
    PromptFailed,
    PromptNotFound,
    ResourceFailed,
    ServerNotFound,
    ServerUnavailable,
    UpstreamError,
    UpstreamErrorResponse,
    UpstreamStatusError,
)
from rookery.tools.gateway_names import restore_slashes, to_gateway_uri
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnUpdate, UpstreamMethod
from rookery.tools.recent_links import RecentLinks
from rookery.tools.resource_uris import ResourceTarget, ResourceUris, list_texts
from rookery.tools.server_info import parse_instructions_uri
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.supervision.session_pool import SessionPool

_NOT_FOUND_CODES = frozenset({-32002, -32602, -32601})
"""Error codes by which upstreams report an unknown resource or prompt: not found, invalid params and method not found."""

_METHOD_NOT_FOUND = -32601
_EMPTY_COMPLETION: JsonObject = {"completion": {"values": [], "hasMore": False}}


class _RetryFields(TypedDict, total=False):
    headers: dict[str, str]
    retry_after: int


class ResourceReader:
    """
    Reads resources, prompts and completions.

    Attributes:
        uris: Resolves the URIs of callers.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        sessions: SessionPool,
        links: RecentLinks,
        kill_switch: KillSwitch | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._sessions = sessions
        self._kill_switch = kill_switch
        self._links = links
        self.uris = ResourceUris(catalogue, self._links)

    def list_resources(self, server: Server, caller: Caller, session_id: str | None = None) -> list[JsonObject]:
        """Return the resources of *server* that *caller* may see, with gateway URIs."""
        features = self._catalogue.get_features(server, caller, session_id)
        return [_with_gateway_uri(server, resource, "uri") for resource in features.resources]

    def list_templates(self, server: Server, caller: Caller, session_id: str | None = None) -> list[JsonObject]:
        """Return the resource templates of *server* that *caller* may see, with gateway URIs."""
        features = self._catalogue.get_features(server, caller, session_id)
        return [_with_gateway_uri(server, template, "uriTemplate") for template in features.templates]

    async def read(self, caller: Caller, uri: str, *, options: CallOptions = DEFAULT_CALL_OPTIONS) -> tuple[str, JsonObject]:
        """
        Return the URI that was read, and {contents: […], _meta?}, for *uri*, a gateway URI or one that a server gave; see `read_any`.

        The first differs from *uri* if a proxy or client has changed that, for example removed a slash.

        Raises:
            RookeryError: See `read_any`, or the resource requires input first.
        """
        read_uri, result = await self._read_renamed(caller, uri, options)
        if not isinstance(result.get("contents"), list):
            raise ResourceFailed(f"The server requires input before it returns {uri!r}.", uri=uri)
        return read_uri, {name: result[name] for name in ("contents", "_meta") if name in result}

    async def read_any(self, caller: Caller, uri: str, *, options: CallOptions = DEFAULT_CALL_OPTIONS) -> JsonObject:
        """
        Return the protocol's complete result of reading *uri*, a gateway URI or one that exactly one server has.

        The contents have gateway URIs, but the resource itself keeps the URI that the caller used.

        Raises:
            NotFound: The server or the resource does not exist.
            AmbiguousName: Several servers have the resource.
            ResourceFailed: The server could not return the resource.
            ServerUnavailable: The server could not be reached.
        """
        return (await self._read_renamed(caller, uri, options))[1]

    async def _read_renamed(self, caller: Caller, uri: str, options: CallOptions) -> tuple[str, JsonObject]:
        """Return the URI that was read, as the caller may use it, and the result of `read_any`."""
        given_uri = restore_slashes(uri)
        instructed_id = parse_instructions_uri(given_uri)
        if instructed_id is not None:
            return given_uri, await self._read_instructions(caller, instructed_id, given_uri, options)
        target = await self.uris.resolve(caller, uri, options)
        candidate, result = await self._read(caller, target, uri, options)

        def rename(own_uri: str) -> str:
            return own_uri if own_uri == given_uri else to_gateway_uri(target.server.id, own_uri)

        contents = result.get("contents")
        if isinstance(contents, list):
            result = {**result, "contents": [_with_uri(content, "uri", rename) for content in cast("list[object]", contents)]}
        return rename(candidate), result

    async def _read_instructions(self, caller: Caller, server_id: str, uri: str, options: CallOptions) -> JsonObject:
        try:
            server = self._catalogue.get_server(caller, server_id)
        except ServerNotFound:
            raise NotFound("resource", uri) from None
        await self._catalogue.wait_listed(server, caller, options)
        instructions = self._catalogue.get_features(server, caller, options.session_id).instructions
        if not instructions:
            raise NotFound("resource", uri)
        return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": instructions}]}

    def get_server(self, caller: Caller, server_id: str) -> Server:
        """
        Return a server that the caller may use.

        Raises:
            RookeryError: The server does not exist, is disabled, or is not allowed for this key.
        """
        return self._catalogue.get_server(caller, server_id)

    async def read_from_server(
        self, caller: Caller, server: Server, uri: str, *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return the protocol's complete result of reading *uri*, a gateway URI or the server's own. The result has the server's own URIs.

        Raises:
            RookeryError: See `read_any`.
        """
        return (await self._read(caller, await self.uris.resolve_in_server(caller, server, uri, options), uri, options))[1]

    async def _read(self, caller: Caller, target: ResourceTarget, uri: str, options: CallOptions) -> tuple[str, JsonObject]:
        """Read the first candidate that the server has. Return it with the result."""
        server = target.server
        for candidate in target.candidates:
            try:
                return candidate, strip_protocol_meta(await self._request(server, caller, options, "resources/read", {"uri": candidate}))
            except UpstreamErrorResponse as upstream_error:
                is_unknown = upstream_error.number in _NOT_FOUND_CODES or not target.is_listed
                if is_unknown and upstream_error.retry_after_s is None:
                    continue
                raise ResourceFailed(
                    f"{server.id} could not return {uri!r}: {upstream_error}",
                    **_retry_fields(upstream_error),
                    server=server.id,
                    uri=uri,
                ) from upstream_error
            except UpstreamError as error:
                raise ResourceFailed(
                    f"{server.id} could not return {uri!r}: {error}", **_retry_fields(error), server=server.id, uri=uri
                ) from error
        raise NotFound("resource", uri)

    async def get_prompt(
        self, caller: Caller, server: Server, name: str, arguments: Mapping[str, str], *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return the protocol's complete result: {description?, messages: […]}, or a request for input.

        Raises:
            PromptNotFound: The server has no prompt of this name.
            PromptFailed: The server could not return the prompt, for example because an argument is missing.
            ServerUnavailable: The server could not be reached.
        """
        await self._catalogue.wait_listed(server, caller, options)
        features = self._catalogue.get_features(server, caller, options.session_id)
        is_listed = self._catalogue.is_known(server, caller, options.session_id) and "prompts" not in features.list_errors
        if is_listed and name not in list_texts(features.prompts, "name"):
            raise PromptNotFound(server.id, name)
        try:
            result = await self._request(server, caller, options, "prompts/get", {"name": name, "arguments": dict(arguments)})
        except UpstreamError as error:
            raise PromptFailed(
                f"{server.id} could not return the prompt {name!r}: {error}", **_retry_fields(error), server=server.id, prompt=name
            ) from error
        if links := list_links(result):
            self._links.record(caller, server, links)
        return strip_protocol_meta(result)

    async def complete_argument(
        self, caller: Caller, server: Server, params: JsonObject, *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return {completion: {values: […]}} for an argument of a prompt or a template. Empty if the server has no completion.

        Args:
            params: The protocol's {ref, argument, context?}, with the server's own names and URIs.

        Raises:
            PromptFailed: The server returned an error.
            ServerUnavailable: The server could not be reached.
        """
        try:
            return await self._request(server, caller, options, "completion/complete", params)
        except UpstreamError as error:
            if isinstance(error, UpstreamErrorResponse) and error.number == _METHOD_NOT_FOUND:
                return _EMPTY_COMPLETION
            if isinstance(error, UpstreamStatusError) and error.status == HTTPStatus.NOT_FOUND:
                return _EMPTY_COMPLETION  # how some servers say that they lack a method
            raise PromptFailed(f"{server.id} could not complete the argument: {error}", **_retry_fields(error), server=server.id) from error

    async def subscribe(
        self, caller: Caller, server: Server, uri: str, on_update: OnUpdate, *, is_on: bool = True, options: CallOptions
    ) -> None:
        """
        Subscribe *on_update* to changes of a resource until the session ends, or unsubscribe it if *is_on* is false.

        Args:
            uri: The server's own URI.

        Raises:
            ResourceFailed: The server does not support subscriptions to it.
            ServerUnavailable: The server could not be reached.
        """
        method: UpstreamMethod = "resources/subscribe" if is_on else "resources/unsubscribe"
        try:
            await self._request(server, caller, options, method, {"uri": uri}, on_update=on_update)
        except UpstreamError as error:
            raise ResourceFailed(
                f"{server.id} cannot subscribe to {uri!r}: {error}", **_retry_fields(error), server=server.id, uri=uri
            ) from error

    async def _request(
        self,
        server: Server,
        caller: Caller,
        options: CallOptions,
        method: UpstreamMethod,
        params: JsonObject,
        *,
        on_update: OnUpdate | None = None,
    ) -> JsonObject:
        """Send a request in the caller's session. Retry once if the session breaks, because reads change nothing."""
        if self._kill_switch is not None:
            await self._kill_switch.require_enabled(caller, server.id)
        if server.fault is not None:
            raise ServerUnavailable(server.fault, server=server.id)
        session = self._sessions.get_session(server, caller, options.session_id)
        request_options = options.to_request_options(server, caller, on_progress=options.on_progress, on_update=on_update)
        params = options.add_to_params(server, params)
        is_last = False
        while True:
            try:
                async with session.slot(caller.key_id, is_read_only=True) as slot:
                    connection = session.current_connection or await session.get_connection(request_options)
                    try:
                        result = await send_with_timeout(
                            connection, slot, method, params, options=request_options, limit_s=server.timeout_s
                        )
                        session.note_caller(request_options)
                        return result
                    except ConnectionLost as connection_error:
                        session.mark_failed(connection, str(connection_error))
                        if is_last:
                            raise ServerUnavailable(str(connection_error), server=server.id) from connection_error
                        is_last = True
            except ConnectFailed as failed:
                raise ServerUnavailable(str(failed), **_retry_fields(failed), server=server.id) from failed
            except TimeoutError as error:
                message = f"The server neither answered nor reported progress within {server.timeout_s:g} s."
                raise ServerUnavailable(message, server=server.id) from error


def _retry_fields(error: UpstreamError) -> _RetryFields:
    """Return the header and the field of a response that tell the caller when the server allows another request."""
    if error.retry_after_s is None:
        return {}
    return {"headers": {"Retry-After": str(error.retry_after_s)}, "retry_after": error.retry_after_s}


def _with_gateway_uri(server: Server, item: JsonObject, field: str) -> JsonObject:
    """Return *item* with its URI replaced by the gateway URI."""
    return _with_uri(item, field, lambda uri: to_gateway_uri(server.id, uri))


def _with_uri(item: object, field: str, rename: Callable[[str], str]) -> JsonObject:
    content = cast("JsonObject", item) if isinstance(item, dict) else JsonObject()
    uri = content.get(field)
    return {**content, field: rename(uri)} if isinstance(uri, str) else dict(content)
