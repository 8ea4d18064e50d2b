"""`/api-keys` (D-29)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.api.keys import WRITE_SCOPE, KeyRoutes
from rookery.access.api_keys import ApiKeys
from rookery.access.guard import get_caller
from rookery.access.models import Actor, KeyWithSecret
from rookery.access.schemas import ApiKeyChangeBody, ApiKeyResponse, NewApiKeyBody, NewApiKeyResponse
from rookery.kernel.http import Route, respond_with
from rookery.kernel.http.conditional_requests import by_etag, read_if_match, with_etag


@dataclass(frozen=True, slots=True)
class ApiKeyRoutes(KeyRoutes):
    """The routes of API keys. Handlers only parse the request, call `ApiKeys` and build the response."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        tags = ("Keys",)
        return [
            Route(method="POST", path="/api-keys", handler=self.post_key, required_scope=WRITE_SCOPE, status=201,
                  response_model=NewApiKeyResponse,
                  idempotent=True, secret_fields=("plaintext_key",), operation_id="create_api_key", summary="Create an API key", tags=tags),
            Route(method="PATCH", path="/api-keys/{key_id}", handler=self.patch_key, required_scope=WRITE_SCOPE,
                  response_model=ApiKeyResponse, operation_id="update_api_key", summary="Change an API key", tags=tags),
            *self.shared_routes("/api-keys", "API key", ApiKeyResponse, NewApiKeyResponse),
        ]  # fmt: skip

    @with_etag
    async def post_key(self, request: Request, body: NewApiKeyBody) -> Response:
        """
        Create an API key.

        `plaintext_key` is returned only in this response. The caller must have every scope and limit that it gives to the key.
        """
        caller = get_caller(request)
        respond = respond_with(KeyWithSecret, lambda key: self.new_key_response(caller, key))
        return respond(await self._keys.create(caller.public_workspace_id, body.to_model(caller.environment), by=Actor.from_caller(caller)))

    @with_etag
    @by_etag
    async def patch_key(self, request: Request, body: ApiKeyChangeBody, key_id: str) -> Response:
        """Change the name, scopes, limits or expiry of an API key. The change applies from the next request on."""
        caller = get_caller(request)
        await self._keys.update(
            caller.public_workspace_id, key_id, body.to_changes(), by=Actor.from_caller(caller), expected=read_if_match(request)
        )
        return await self.key_response(caller, key_id)

    @property
    def _keys(self) -> ApiKeys:
        return cast("ApiKeys", self.keyring)
