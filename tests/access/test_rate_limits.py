"""The rate limit of an admitted request and the headers that report it."""

from __future__ import annotations

import pytest

from rookery.access.errors import KeyRevoked, RateLimited
from rookery.access.guard import AdmittedRequest
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Tier
from rookery.kernel.errors import RookeryError
from tests.access.makers import Access
from tests.conftest import OPERATOR


@pytest.mark.parametrize(
    ("tier", "environment", "limit"),
    [
        (Tier.FREE, "live", 1_000),
        (Tier.PRO, "live", 10_000),
        (Tier.BUSINESS, "live", 50_000),
        (Tier.FREE, "test", 10_000),
        (Tier.PRO, "test", 100_000),
    ],
)
async def test_an_api_key_has_the_hourly_limit_of_its_tier(access: Access, tier: Tier, environment: str, limit: int) -> None:
    """Limits by tier, with Reset as a Unix time. Test keys have ten times the limit."""
    new_key = await access.create_api_key(
        await access.create_workspace(),
        NewApiKey(name="key", scopes=("*",), rate_limit_tier=tier, environment="test" if environment == "test" else "live"),
    )
    reset = int(access.clock().timestamp()) + 3600

    assert headers_of(await access.admit(new_key)) == {
        "x-ratelimit-limit": limit,
        "x-ratelimit-remaining": limit - 1,
        "x-ratelimit-reset": reset,
    }
    access.clock.advance(minutes=10)
    assert headers_of(await access.admit(new_key)) == {
        "x-ratelimit-limit": limit,
        "x-ratelimit-remaining": limit - 2,
        "x-ratelimit-reset": reset,
    }
    access.clock.advance(minutes=50)
    assert headers_of(await access.admit(new_key))["x-ratelimit-remaining"] == limit - 1


async def test_an_agent_key_has_its_own_limit_per_minute(access: Access) -> None:
    """Reset is in seconds until the window ends. Over the limit 429 with Retry-After and the rate limit headers."""
    new_key = await access.create_agent_key(
        await access.create_workspace(), NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=2)
    )

    assert headers_of(await access.admit(new_key)) == {"x-ratelimit-limit": 2, "x-ratelimit-remaining": 1, "x-ratelimit-reset": 60}
    access.clock.advance(seconds=20.5)
    assert headers_of(await access.admit(new_key)) == {"x-ratelimit-limit": 2, "x-ratelimit-remaining": 0, "x-ratelimit-reset": 40}
    with pytest.raises(RateLimited) as refusal:
        await access.admit(new_key)
    assert refusal.value.headers == {"Retry-After": "40", "x-ratelimit-limit": "2", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "40"}
    access.clock.advance(seconds=39.5)
    assert headers_of(await access.admit(new_key))["x-ratelimit-remaining"] == 1


async def test_an_enterprise_key_is_unlimited(access: Access) -> None:
    """Limit = Remaining = 2147483647, and nothing is counted."""
    new_key = await access.create_api_key(await access.create_workspace())

    for _ in range(3):
        headers = headers_of(await access.admit(new_key))
        assert (headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]) == (2147483647, 2147483647)


async def test_every_error_for_a_known_key_has_its_headers_and_spends_nothing(access: Access) -> None:
    """Headers on every response to a known key; 401 and 403 spend nothing."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=5))
    await access.admit(new_key)
    for required_scope, headers in (("brain:write", ()), (None, ((b"x-workspace-id", b"999999"),))):
        with pytest.raises(RookeryError) as refusal:
            await access.admit(new_key, required_scope=required_scope, headers=headers)
        assert refusal.value.headers["x-ratelimit-remaining"] == "4"
    await access.agent_keys.suspend(workspace, new_key.key.id, by=OPERATOR)
    with pytest.raises(KeyRevoked) as error:
        await access.admit(new_key)
    assert error.value.headers["x-ratelimit-remaining"] == "4"


async def test_requests_that_spend_nothing_are_not_limited(access: Access) -> None:
    """Heartbeats and status requests spend nothing, and succeed when the limit is used up."""
    new_key = await access.create_agent_key(
        await access.create_workspace(), NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1)
    )

    assert headers_of(await access.admit(new_key, rate_limited=False))["x-ratelimit-remaining"] == 1
    await access.admit(new_key)
    with pytest.raises(RateLimited):
        await access.admit(new_key)
    assert headers_of(await access.admit(new_key, rate_limited=False))["x-ratelimit-remaining"] == 0


def headers_of(admission: AdmittedRequest) -> dict[str, int]:
    """Return the rate limit headers as numbers."""
    return {name.decode(): int(value) for name, value in admission.headers}
