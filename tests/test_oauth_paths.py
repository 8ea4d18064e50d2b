"""The paths of an OAuth sign-in, which MCP clients try after a refused key."""

from __future__ import annotations

import pytest

from tests.conftest import Caller, Instance
from tests.error_bodies import error_body

NO_SIGN_IN = "Rookery has no OAuth sign-in. Clients send a key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
PATHS = [
    ("POST", "/register"),
    ("GET", "/authorize"),
    ("POST", "/token"),
    ("GET", "/.well-known/oauth-protected-resource"),
    ("GET", "/.well-known/oauth-protected-resource/mcp"),
    ("GET", "/.well-known/oauth-authorization-server"),
    ("GET", "/.well-known/oauth-authorization-server/mcp/time"),
    ("GET", "/.well-known/openid-configuration"),
    ("GET", "/mcp/.well-known/openid-configuration"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_the_paths_of_oauth_say_that_keys_are_used(instance: Instance, method: str, path: str) -> None:
    """404 with the sentence as the message and as `error_description`, which OAuth clients show."""
    response = await instance.caller(None).send(method, path)

    assert (response.status_code, error_body(response)["error"]) == (404, "not_found")
    assert error_body(response)["message"] == error_body(response)["error_description"] == NO_SIGN_IN


async def test_they_say_why_the_key_of_the_request_is_refused(instance: Instance) -> None:
    """Bridges send their key there too, and show only this answer."""
    callers: list[tuple[Caller, str]] = [
        (instance.caller("ak_" + "0" * 32), "This key is unknown."),
        (instance.caller("${ROOKERY_KEY}"), "ROOKERY_KEY is not set"),
        (instance.agent, ""),
    ]

    messages = [str(error_body(await caller.post("/register", {}))["message"]) for caller, _ in callers]

    assert messages[2] == NO_SIGN_IN
    for message, (_, reason) in zip(messages[:2], callers, strict=False):
        assert message.startswith(f"{NO_SIGN_IN} The key of this request was refused: ")
        assert reason in message
