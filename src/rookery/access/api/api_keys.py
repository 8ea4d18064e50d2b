"""`/api-keys` (D-29)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.api.keys import WRITE, KeyRoutes
from rookery.access.api_keys import ApiKeys
from rookery.access.guard import caller_of
from rookery.access.models import Actor, Minted
from rookery.access.schemas import ApiKeyAnswer, ApiKeyChangeBody, NewApiKeyAnswer, NewApiKeyBody
from rookery.kernel.http import Route, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, with_etag


@dataclass(frozen=True, slots=True)
class ApiKeyRoutes(KeyRoutes):
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    def routes(self) -> list[Route]:
        """Return the table, one line per endpoint."""
        tags = ("Keys",)
        return [
            Route(method="POST", path="/api-keys", handler=self.post_key, needs=WRITE, status=201, answers=NewApiKeyAnswer,
                  once=True, secrets=("plaintext_key",), operation_id="create_api_key", summary="Create an API key", tags=tags),
            Route(method="PATCH", path="/api-keys/{key_id}", handler=self.patch_key, needs=WRITE, answers=ApiKeyAnswer,
                  operation_id="update_api_key", summary="Change an API key", tags=tags),
            *self.common("/api-keys", "API key", ApiKeyAnswer, NewApiKeyAnswer),
        ]  # fmt: skip

    @with_etag
    async def post_key(self, request: Request, body: NewApiKeyBody) -> Response:
        """
        Create an API key.

        `plaintext_key` is shown in this answer only. The caller must hold every scope and limit that it gives to the key.
        """
        caller = caller_of(request)
        answer = respond_with(Minted, lambda made: self.minted(caller, made))
        return answer(await self._keys.create(caller.shown_workspace_id, body.new(caller.environment), by=Actor.of(caller)))

    @with_etag
    @by_etag
    async def patch_key(self, request: Request, body: ApiKeyChangeBody, key_id: str) -> Response:
        """Change the name, scopes, limits or expiry of an API key. The change applies from the next request on."""
        caller = caller_of(request)
        await self._keys.alter(caller.shown_workspace_id, key_id, body.changes(), by=Actor.of(caller), expected=expected(request))
        return await self.answer(caller, key_id)

    @property
    def _keys(self) -> ApiKeys:
        return cast("ApiKeys", self.keyring)
