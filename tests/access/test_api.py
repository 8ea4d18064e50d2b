"""The rate limit routes, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from rookery.access.api import AccessApi
from rookery.access.api.current_key import CurrentKeyOperations
from rookery.access.errors import Unauthorised
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import CallFilter, KeyWithSecret, Tier
from rookery.kernel.http import EdgeMiddleware, mount_routes
from rookery.kernel.http.edge import respond_not_found
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access
from tests.conftest import OPERATOR

RATE_LIMIT = ("/api/v1/rate-limit", "/api/agent/rate-limit")


@pytest.fixture
async def client(access: Access) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server with the routes of access alone."""
    routes = RouteTable()
    api = AccessApi(
        guard=access.guard,
        api_keys=access.api_keys,
        agent_keys=access.agent_keys,
        workspaces=access.workspaces,
        usage=access.usage,
        audit=access.audit,
        clock=access.clock,
    )
    mount_routes(routes, "/api/v1", api.platform_operations(), access.guard)
    mount_routes(routes, "/api/agent", api.agent_operations(), access.guard)
    shell = EdgeMiddleware(
        endpoints_by_path=routes.endpoints_by_path,
        router=respond_not_found,
        hosts={"rookery.test"},
        origins=(),
        public_url=lambda _: "http://rookery.test",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://rookery.test") as client:
        yield client


def bearer_headers(new_key: KeyWithSecret) -> dict[str, str]:
    """Return headers with the key."""
    return {"Authorization": f"Bearer {new_key.plaintext.reveal()}"}


async def test_the_status_call_spends_nothing(client: httpx2.AsyncClient, access: Access) -> None:
    """Limit, remaining, reset_in_seconds and used; also when the limit is used up."""
    new_key = await access.create_agent_key(
        await access.create_workspace(), NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1)
    )
    unused = {"limit": 1, "remaining": 1, "reset_in_seconds": 60, "reset": 60, "used": 0, "window_seconds": 60, "local": False}
    for path in (*RATE_LIMIT, *RATE_LIMIT):
        response = await client.get(path, headers=bearer_headers(new_key))
        assert (response.status_code, response.json(), response.headers["X-RateLimit-Remaining"]) == (200, unused, "1")
    await access.admit(new_key)
    access.clock.advance(seconds=15)

    response = await client.get(RATE_LIMIT[1], headers=bearer_headers(new_key))
    assert response.json() == {**unused, "remaining": 0, "reset_in_seconds": 45, "reset": 45, "used": 1}


async def test_an_api_key_s_reset_is_a_unix_time(client: httpx2.AsyncClient, access: Access) -> None:
    """The response for an unlimited key says so."""
    workspace = await access.create_workspace()
    free_key = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("brain:read",), rate_limit_tier=Tier.FREE))
    await access.admit(free_key)

    response = (await client.get(RATE_LIMIT[0], headers=bearer_headers(free_key))).json()
    assert response == {
        "limit": 1000,
        "remaining": 999,
        "reset_in_seconds": 3600,
        "reset": int(access.clock().timestamp()) + 3600,
        "used": 1,
        "window_seconds": 3600,
        "local": False,
    }
    unlimited = (await client.get(RATE_LIMIT[0], headers=bearer_headers(await access.create_api_key(workspace)))).json()
    assert (unlimited["limit"], unlimited["remaining"], unlimited["used"]) == (2147483647, 2147483647, 0)


async def test_every_error_has_the_same_body_and_its_headers(client: httpx2.AsyncClient, access: Access) -> None:
    """Error, message and detail; WWW-Authenticate on 401, rate limit headers once the key is known."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace)
    without_key = await client.get(RATE_LIMIT[0])
    assert (without_key.status_code, without_key.json()["error"], without_key.headers["WWW-Authenticate"]) == (
        401,
        "unauthorised",
        "Bearer",
    )
    await access.agent_keys.revoke(workspace, new_key.key.id, by=OPERATOR)
    with_revoked_key = await client.get(RATE_LIMIT[0], headers=bearer_headers(new_key))

    assert (with_revoked_key.status_code, with_revoked_key.json()["error"]) == (401, "key_revoked")
    assert (with_revoked_key.headers["X-RateLimit-Limit"], with_revoked_key.headers["WWW-Authenticate"]) == ("600", "Bearer")


async def test_a_deleted_key_has_no_rate_limit_status(access: Access) -> None:
    """A key may be deleted between the guard and the route."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    caller = (await access.admit(new_key)).caller
    await access.api_keys.delete(workspace, new_key.key.id, by=OPERATOR)

    with pytest.raises(Unauthorised):
        await CurrentKeyOperations(access.guard, access.api_keys, access.agent_keys, access.workspaces, access.clock).get_rate_limit(caller)


async def test_a_call_over_http_is_logged_with_its_route(client: httpx2.AsyncClient, access: Access) -> None:
    """One row a call, under the request's id."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    await client.get(RATE_LIMIT[0], headers={**bearer_headers(new_key), "X-Request-ID": "mine"})

    calls, total, *_ = await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(9))
    assert total == 1
    assert (calls[0].method, calls[0].route, calls[0].status, calls[0].request_id) == ("GET", "/api/v1/rate-limit", 200, "mine")
