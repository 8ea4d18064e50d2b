"""Keys that are the name of a variable, because the variable was not set where the client was started."""

from __future__ import annotations

import base64

import pytest

from rookery.access.errors import KeyRevoked, Unauthorised
from tests.access.makers import Access
from tests.conftest import OPERATOR

NAME = "ROOKERY_KEY"


@pytest.mark.parametrize(
    "text",
    ["${ROOKERY_KEY}", "$ROOKERY_KEY", "{env:ROOKERY_KEY}", "${env:ROOKERY_KEY}", "${ROOKERY_KEY:-}", "$env:ROOKERY_KEY", "%ROOKERY_KEY%",
     "{{ROOKERY_KEY}}"],
)  # fmt: skip
async def test_the_name_of_a_variable_is_named(access: Access, text: str) -> None:
    """The syntaxes of the clients that `rookery connect` knows, of shells and of templates."""
    for header in ((b"authorization", f"Bearer {text}".encode()), (b"x-api-key", text.encode())):
        with pytest.raises(Unauthorised) as refusal:
            await access.send(header)

        assert f"{NAME} is not set where the client was started" in refusal.value.message
        assert (refusal.value.code, refusal.value.headers) == ("unauthorised", {"WWW-Authenticate": "Bearer"})


async def test_the_name_of_a_variable_may_be_a_user_name(access: Access) -> None:
    """Basic credentials carry keys too."""
    with pytest.raises(Unauthorised) as refusal:
        await access.send((b"authorization", b"Basic " + base64.b64encode(b"${ROOKERY_KEY}:")))

    assert f"{NAME} is not set" in refusal.value.message


@pytest.mark.parametrize(
    "header", [(b"authorization", b"Bearer "), (b"authorization", b"Bearer"), (b"authorization", b""), (b"x-api-key", b" ")]
)
async def test_an_empty_header_points_to_the_variable(access: Access, header: tuple[bytes, bytes]) -> None:
    """Some clients put nothing in place of a variable that is not set."""
    with pytest.raises(Unauthorised) as refusal:
        await access.send(header)

    assert f"a variable, such as {NAME}, that variable is not set where the client was started" in refusal.value.message


@pytest.mark.parametrize("text", ["undefined", "null", "None"])
async def test_the_word_for_no_value_is_named(access: Access, text: str) -> None:
    """JavaScript and Python write these words for a variable without a value."""
    with pytest.raises(Unauthorised) as refusal:
        await access.admit(text)

    assert refusal.value.message.startswith(f"The client sent {text!r} instead of a key")


async def test_a_key_in_the_place_of_a_name_is_not_repeated(access: Access) -> None:
    """A mistake in a file must not show its key in the log of the client."""
    token = (await access.create_agent_key(await access.create_workspace())).plaintext.reveal()

    with pytest.raises(Unauthorised) as refusal:
        await access.admit(f"${{{token}}}")

    assert token not in refusal.value.message
    assert "ak_" in refusal.value.message


async def test_a_suspended_key_is_told_apart_from_a_revoked_one(access: Access) -> None:
    """To the owner these differ: one works again. The code is the same."""
    workspace = await access.create_workspace()
    key = await access.create_agent_key(workspace)
    token = key.plaintext.reveal()

    await access.agent_keys.suspend(workspace, key.key.id, by=OPERATOR)
    with pytest.raises(KeyRevoked) as suspended:
        await access.admit(token)
    await access.agent_keys.resume(workspace, key.key.id, by=OPERATOR)
    assert (await access.admit(token)).caller.key_id == key.key.id
    await access.agent_keys.revoke(workspace, key.key.id, by=OPERATOR)
    with pytest.raises(KeyRevoked) as revoked:
        await access.admit(token)

    assert (suspended.value.code, suspended.value.message) == ("key_revoked", "This key is suspended. It works again once it is resumed.")
    assert (revoked.value.code, revoked.value.message) == ("key_revoked", "This key was revoked.")
