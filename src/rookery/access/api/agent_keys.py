"""`/agent-keys`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from rookery.access.agent_keys import AgentKeys
from rookery.access.api.keys import DELETE_SCOPE, READ_SCOPE, WRITE_SCOPE, KeyOperations, key_operation
from rookery.access.models import Actor, Caller, Key, KeyWithSecret, KeyWithUsage
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
from rookery.kernel.http import Operation, Output
from rookery.kernel.preconditions import ExpectedETags


@dataclass(frozen=True, slots=True)
class AgentKeyOperations(KeyOperations):
    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/agent-keys", "/agent-keys/{key_id}"
        ips, permissions = f"{one}/ips", f"{one}/permissions"
        key = partial(key_operation, present=self.present_key, response_model=AgentKeyResponse, etag=True)
        change = partial(key, required_scope=WRITE_SCOPE)
        return [
            key_operation(method="POST", path=base, handler=self.post_key, present=self.present_new_key, committed=KeyWithSecret,
                          required_scope=WRITE_SCOPE, status=201, response_model=NewAgentKeyResponse, idempotent=True,
                          secret_fields=("key",), etag=True, operation_id="create_agent_key", summary="Create an agent key"),
            change(method="PATCH", path=one, handler=self.patch_key, errors=(Conflict,), operation_id="update_agent_key",
                   summary="Change an agent key"),
            key(method="POST", path=f"{one}/revoke", handler=self.post_revoke, required_scope=DELETE_SCOPE,
                operation_id="revoke_agent_key", summary="Revoke an agent key", allowed_on_full_disk=True),
            change(method="POST", path=f"{one}/extend", handler=self.post_extend, errors=(Conflict,), operation_id="extend_agent_key",
                   summary="Replace or remove the expiry of an agent key"),
            key_operation(method="GET", path=permissions, handler=self.get_permissions, required_scope=READ_SCOPE,
                          response_model=PermissionsResponse, etag=True, operation_id="get_agent_key_permissions",
                          summary="Show and check the permissions of an agent key"),
            change(method="PUT", path=permissions, handler=self.put_permissions, operation_id="replace_agent_key_permissions",
                   summary="Replace the permissions of an agent key"),
            key_operation(method="GET", path=ips, handler=self.get_ips, required_scope=ADDRESSES_SCOPE, response_model=AddressesResponse,
                          etag=True, operation_id="list_agent_key_ips", summary="Show the IP list of an agent key"),
            change(method="PUT", path=ips, handler=self.put_ips, operation_id="replace_agent_key_ips",
                   summary="Replace the IP list of an agent key"),
            change(method="POST", path=ips, handler=self.post_ips, operation_id="add_agent_key_ips",
                   summary="Add to the IP list of an agent key"),
            change(method="DELETE", path=ips, handler=self.delete_ips, operation_id="remove_agent_key_ips",
                   summary="Remove from the IP list of an agent key"),
            *self.shared_operations(base, "agent key", AgentKeyResponse, NewAgentKeyResponse, "key"),
        ]  # fmt: skip

    async def post_key(self, caller: Caller, body: NewAgentKeyBody) -> KeyWithSecret:
        """
        Create an agent key.

        `key` is returned only in this response. The caller must have every permission and limit that it gives to the key.
        """
        return await self._keys.create(caller.public_workspace_id, body.to_model(), by=Actor.from_caller(caller))

    async def patch_key(self, caller: Caller, key_id: str, body: AgentKeyChangeBody, expected: ExpectedETags) -> KeyWithUsage:
        """Change the name, limits or lists of an agent key. The change applies from the next request on; `agent_id` cannot change."""
        by = Actor.from_caller(caller)
        await self._keys.update(caller.public_workspace_id, key_id, body.to_changes(), by=by, expected=expected)
        return await self.load_key(caller, key_id)

    async def post_revoke(self, caller: Caller, key_id: str, expected: ExpectedETags) -> KeyWithUsage:
        """Revoke a key for good. Its requests are rejected with `key_revoked` from then on. Revoking it again changes nothing."""
        await self._keys.revoke(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected)
        return await self.load_key(caller, key_id)

    async def post_extend(self, caller: Caller, key_id: str, body: ExtendBody, expected: ExpectedETags) -> KeyWithUsage:
        """Replace the expiry, or remove it with null. An expired key becomes active again; a revoked one does not."""
        by = Actor.from_caller(caller)
        await self._keys.extend(caller.public_workspace_id, key_id, body.expires_at, by=by, expected=expected)
        return await self.load_key(caller, key_id)

    async def get_permissions(self, caller: Caller, key_id: str, query: PermissionCheckQuery) -> Output:
        """
        Return the permissions of a key, and whether it has one, any or all of the permissions that the query names.

        The ETag is the key's.
        """
        _require_known_permissions(query)
        entry = await self.load_key(caller, key_id)
        held_scopes = frozenset(entry.key.scopes)
        response = PermissionsResponse(
            permissions=list(entry.key.scopes),
            has=None if query.has is None else grants(held_scopes, query.has),
            any=grants_any(held_scopes, query.any) if query.any else None,
            all=grants_all(held_scopes, query.all) if query.all else None,
        )
        return Output(body=response, version=entry.version)

    async def put_permissions(self, caller: Caller, key_id: str, body: PermissionsBody, expected: ExpectedETags) -> KeyWithUsage:
        """Replace all permissions of a key. The caller must have the old and the new ones."""
        by = Actor.from_caller(caller)
        await self._keys.set_permissions(caller.public_workspace_id, key_id, body.permissions, by=by, expected=expected)
        return await self.load_key(caller, key_id)

    async def get_ips(self, caller: Caller, key_id: str) -> Output:
        """
        Return the addresses and CIDR ranges that the key may be used from, and whether the list is enforced.

        The ETag is the key's.
        """
        entry = await self.load_key(caller, key_id)
        response = AddressesResponse(ip_restriction=entry.key.ip_restriction, ips=list(entry.key.ip_list))
        return Output(body=response, version=entry.version)

    async def put_ips(self, caller: Caller, key_id: str, body: AddressesBody, expected: ExpectedETags) -> KeyWithUsage:
        """Replace the list of addresses and CIDR ranges that the key may be used from."""
        return await self._change_ips(self._keys.set_addresses, caller, key_id, body, expected)

    async def post_ips(self, caller: Caller, key_id: str, body: AddressesBody, expected: ExpectedETags) -> KeyWithUsage:
        """Add addresses and CIDR ranges to the list that the key may be used from."""
        return await self._change_ips(self._keys.add_addresses, caller, key_id, body, expected)

    async def delete_ips(self, caller: Caller, key_id: str, body: AddressesBody, expected: ExpectedETags) -> KeyWithUsage:
        """Remove addresses and CIDR ranges from the list. Entries that are not in the list are ignored."""
        return await self._change_ips(self._keys.remove_addresses, caller, key_id, body, expected)

    async def _change_ips(
        self, change: Callable[..., Awaitable[Key]], caller: Caller, key_id: str, body: AddressesBody, expected: ExpectedETags
    ) -> KeyWithUsage:
        by, is_enforced = Actor.from_caller(caller), body.ip_restriction
        await change(caller.public_workspace_id, key_id, body.entries, is_enforced=is_enforced, by=by, expected=expected)
        return await self.load_key(caller, key_id)

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
