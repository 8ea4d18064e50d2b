"""`/api-keys`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rookery.access.api.keys import WRITE_SCOPE, KeyOperations, key_operation
from rookery.access.api_keys import ApiKeys
from rookery.access.models import Actor, Caller, KeyWithSecret, KeyWithUsage
from rookery.access.schemas import ApiKeyChangeBody, ApiKeyResponse, NewApiKeyBody, NewApiKeyResponse
from rookery.kernel.http import Operation
from rookery.kernel.preconditions import ExpectedETags


@dataclass(frozen=True, slots=True)
class ApiKeyOperations(KeyOperations):
    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            key_operation(method="POST", path="/api-keys", handler=self.post_key, present=self.present_new_key, committed=KeyWithSecret,
                          required_scope=WRITE_SCOPE, status=201, response_model=NewApiKeyResponse, idempotent=True,
                          secret_fields=("plaintext_key",), etag=True, operation_id="create_api_key", summary="Create an API key"),
            key_operation(method="PATCH", path="/api-keys/{key_id}", handler=self.patch_key, present=self.present_key,
                          required_scope=WRITE_SCOPE, response_model=ApiKeyResponse, etag=True, operation_id="update_api_key",
                          summary="Change an API key"),
            *self.shared_operations("/api-keys", "API key", ApiKeyResponse, NewApiKeyResponse, "plaintext_key"),
        ]  # fmt: skip

    async def post_key(self, caller: Caller, body: NewApiKeyBody) -> KeyWithSecret:
        """
        Create an API key.

        `plaintext_key` is returned only in this response. The caller must have every scope and limit that it gives to the key.
        """
        return await self._keys.create(caller.public_workspace_id, body.to_model(caller.environment), by=Actor.from_caller(caller))

    async def patch_key(self, caller: Caller, key_id: str, body: ApiKeyChangeBody, expected: ExpectedETags) -> KeyWithUsage:
        """Change the name, scopes, limits or expiry of an API key. The change applies from the next request on."""
        by = Actor.from_caller(caller)
        await self._keys.update(caller.public_workspace_id, key_id, body.to_changes(), by=by, expected=expected)
        return await self.load_key(caller, key_id)

    @property
    def _keys(self) -> ApiKeys:
        return cast("ApiKeys", self.keyring)
