"""`/agent-keys` (D-29; spec 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.agent_keys import AgentKeys
from rookery.access.api.keys import DELETE_SCOPE, READ_SCOPE, WRITE_SCOPE, KeyRoutes, visible_environment
from rookery.access.guard import get_caller
from rookery.access.models import Actor, Caller, KeyWithSecret, KeyWithUsage
from rookery.access.schemas import (
    AddressesBody,
    AddressesResponse,
    AgentKeyChangeBody,
    AgentKeyResponse,
    ExtendBody,
    NewAgentKeyBody,
    NewAgentKeyResponse,
    PermissionCheckQuery,
    PermissionsBody,
    PermissionsResponse,
)
from rookery.access.scopes import ADDRESSES_SCOPE, grants, grants_all, grants_any, parse_grants
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.http import Route, allowed_on_full_disk, document_route, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag


@dataclass(frozen=True, slots=True)
class AgentKeyRoutes(KeyRoutes):
    """The routes of agent keys. Handlers only parse the request, call `AgentKeys` and build the response."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        base, key_path, tags = "/agent-keys", "/agent-keys/{key_id}", ("Keys",)
        ips, permissions = f"{key_path}/ips", f"{key_path}/permissions"
        return [
            Route(method="POST", path=base, handler=self.post_key, required_scope=WRITE_SCOPE, status=201,
                  response_model=NewAgentKeyResponse,
                  idempotent=True, secret_fields=("key",), operation_id="create_agent_key", summary="Create an agent key", tags=tags),
            Route(method="PATCH", path=key_path, handler=self.patch_key, required_scope=WRITE_SCOPE, response_model=AgentKeyResponse,
                  operation_id="update_agent_key", summary="Change an agent key", tags=tags),
            Route(method="POST", path=f"{key_path}/revoke", handler=self.post_revoke, required_scope=DELETE_SCOPE,
                  response_model=AgentKeyResponse, operation_id="revoke_agent_key", summary="Revoke an agent key", tags=tags),
            Route(method="POST", path=f"{key_path}/extend", handler=self.post_extend, required_scope=WRITE_SCOPE,
                  response_model=AgentKeyResponse,
                  operation_id="extend_agent_key", summary="Replace or remove the expiry of an agent key", tags=tags),
            Route(method="GET", path=permissions, handler=self.get_permissions, required_scope=READ_SCOPE,
                  response_model=PermissionsResponse,
                  operation_id="get_agent_key_permissions", summary="Show and check the permissions of an agent key", tags=tags),
            Route(method="PUT", path=permissions, handler=self.put_permissions, required_scope=WRITE_SCOPE, response_model=AgentKeyResponse,
                  operation_id="replace_agent_key_permissions", summary="Replace the permissions of an agent key", tags=tags),
            Route(method="GET", path=ips, handler=self.get_ips, required_scope=ADDRESSES_SCOPE, response_model=AddressesResponse,
                  operation_id="list_agent_key_ips", summary="Show the IP list of an agent key", tags=tags),
            Route(method="PUT", path=ips, handler=self.put_ips, required_scope=WRITE_SCOPE, response_model=AgentKeyResponse,
                  operation_id="replace_agent_key_ips", summary="Replace the IP list of an agent key", tags=tags),
            Route(method="POST", path=ips, handler=self.post_ips, required_scope=WRITE_SCOPE, response_model=AgentKeyResponse,
                  operation_id="add_agent_key_ips", summary="Add to the IP list of an agent key", tags=tags),
            Route(method="DELETE", path=ips, handler=self.delete_ips, required_scope=WRITE_SCOPE, response_model=AgentKeyResponse,
                  operation_id="remove_agent_key_ips", summary="Remove from the IP list of an agent key", tags=tags),
            *self.shared_routes(base, "agent key", AgentKeyResponse, NewAgentKeyResponse),
        ]  # fmt: skip

    @with_etag
    async def post_key(self, request: Request, body: NewAgentKeyBody) -> Response:
        """
        Create an agent key.

        `key` is returned only in this response. The caller must have every permission and limit that it gives to the key.
        """
        caller = get_caller(request)
        respond = respond_with(KeyWithSecret, lambda key: self.new_key_response(caller, key))
        return respond(await self._keys.create(caller.public_workspace_id, body.to_model(), by=Actor.from_caller(caller)))

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def patch_key(self, request: Request, body: AgentKeyChangeBody, key_id: str) -> Response:
        """Change the name, limits or lists of an agent key. The change applies from the next request on; `agent_id` cannot change."""
        caller = get_caller(request)
        await self._keys.update(
            caller.public_workspace_id, key_id, body.to_changes(), by=Actor.from_caller(caller), expected=read_if_match(request)
        )
        return await self.key_response(caller, key_id)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    async def post_revoke(self, request: Request, key_id: str) -> Response:
        """Revoke a key for good. Its requests are rejected with `key_revoked` from then on. Revoking it again changes nothing."""
        caller = get_caller(request)
        await self._keys.revoke(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=read_if_match(request))
        return await self.key_response(caller, key_id)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_extend(self, request: Request, body: ExtendBody, key_id: str) -> Response:
        """Replace the expiry, or remove it with null. An expired key becomes active again; a revoked one does not."""
        caller = get_caller(request)
        await self._keys.extend(
            caller.public_workspace_id, key_id, body.expires_at, by=Actor.from_caller(caller), expected=read_if_match(request)
        )
        return await self.key_response(caller, key_id)

    @with_etag
    async def get_permissions(self, request: Request, key_id: str, query: Annotated[PermissionCheckQuery, Query()]) -> Response:
        """
        Return the permissions of a key, and whether it has one, any or all of the permissions that the query names.

        The ETag is the key's.
        """
        _require_known_permissions(query)
        entry = await self._get_key(get_caller(request), key_id)
        key = entry.key
        held_scopes = frozenset(key.scopes)
        return json_with_etag(
            PermissionsResponse(
                permissions=list(key.scopes),
                has=None if query.has is None else grants(held_scopes, query.has),
                any=grants_any(held_scopes, query.any) if query.any else None,
                all=grants_all(held_scopes, query.all) if query.all else None,
            ),
            entry.version,
        )

    @with_etag
    @by_etag
    async def put_permissions(self, request: Request, body: PermissionsBody, key_id: str) -> Response:
        """Replace all permissions of a key. The caller must have the old and the new ones."""
        caller = get_caller(request)
        tags = read_if_match(request)
        await self._keys.set_permissions(caller.public_workspace_id, key_id, body.permissions, by=Actor.from_caller(caller), expected=tags)
        return await self.key_response(caller, key_id)

    @with_etag
    async def get_ips(self, request: Request, key_id: str) -> Response:
        """
        Return the addresses and CIDR ranges that the key may be used from, and whether the list is enforced.

        The ETag is the key's.
        """
        entry = await self._get_key(get_caller(request), key_id)
        key = entry.key
        addresses = list(key.ip_list)
        return json_with_etag(AddressesResponse(ip_restriction=key.ip_restriction, ips=addresses, ip_list=addresses), entry.version)

    @with_etag
    @by_etag
    async def put_ips(self, request: Request, body: AddressesBody, key_id: str) -> Response:
        """Replace the list of addresses and CIDR ranges that the key may be used from."""
        caller = get_caller(request)
        await self._keys.set_addresses(
            caller.public_workspace_id,
            key_id,
            body.entries,
            is_enforced=body.ip_restriction,
            by=Actor.from_caller(caller),
            expected=read_if_match(request),
        )
        return await self.key_response(caller, key_id)

    @with_etag
    @by_etag
    async def post_ips(self, request: Request, body: AddressesBody, key_id: str) -> Response:
        """Add addresses and CIDR ranges to the list that the key may be used from."""
        caller = get_caller(request)
        await self._keys.add_addresses(
            caller.public_workspace_id,
            key_id,
            body.entries,
            is_enforced=body.ip_restriction,
            by=Actor.from_caller(caller),
            expected=read_if_match(request),
        )
        return await self.key_response(caller, key_id)

    @with_etag
    @by_etag
    async def delete_ips(self, request: Request, body: AddressesBody, key_id: str) -> Response:
        """Remove addresses and CIDR ranges from the list. Entries that are not in the list are ignored."""
        caller = get_caller(request)
        await self._keys.remove_addresses(
            caller.public_workspace_id,
            key_id,
            body.entries,
            is_enforced=body.ip_restriction,
            by=Actor.from_caller(caller),
            expected=read_if_match(request),
        )
        return await self.key_response(caller, key_id)

    async def _get_key(self, caller: Caller, key_id: str) -> KeyWithUsage:
        return await self._keys.get(caller.public_workspace_id, key_id, environment=visible_environment(caller))

    @property
    def _keys(self) -> AgentKeys:
        return cast("AgentKeys", self.keyring)


def _require_known_permissions(query: PermissionCheckQuery) -> None:
    """
    Raise an error unless every permission of the query exists.

    Raises:
        ValidationFailed: A permission is unknown. Answering "no" would hide a typing error.
    """
    names_by_check = {"has": [] if query.has is None else [query.has], "any": query.any, "all": query.all}
    if errors := {
        name: invalid for name, names in names_by_check.items() if (invalid := parse_grants(names, allow_platform_scopes=True)[1])
    }:
        raise ValidationFailed(errors)
