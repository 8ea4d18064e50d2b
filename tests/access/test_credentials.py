"""The request headers that present a key."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.credentials import get_lookup, is_agent_key, is_api_key, parse_credentials
from rookery.access.errors import Unauthorised

KEY = b"sk_live_" + b"Ab1" * 10 + b"Zz"
OTHER = b"ak_" + b"x" * 32


def basic(text: bytes) -> bytes:
    """Return Basic credentials of *text*."""
    return b"Basic " + base64.b64encode(text)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer " + KEY)],
        [(b"authorization", b"bearer " + KEY)],
        [(b"authorization", b"BEARER   " + KEY + b" ")],
        [(b"x-api-key", KEY)],
        [(b"x-api-key", b" " + KEY + b" ")],
        [(b"authorization", basic(KEY + b":"))],
        [(b"authorization", b"bAsIc " + base64.b64encode(KEY + b":"))],
        [(b"authorization", b"Bearer " + KEY), (b"x-api-key", KEY)],
        [(b"authorization", b"Bearer " + KEY), (b"authorization", basic(KEY + b":"))],
        [(b"authorization", b"Bearer " + KEY), (b"x-api-key", b"")],
        [(b"x-api-key", b""), (b"authorization", b"Bearer " + KEY)],
    ],
)
def test_every_form_carries_the_key(headers: list[tuple[bytes, bytes]]) -> None:
    """Bearer in any case, X-API-Key, Basic user name with an empty password; the same key twice is one."""
    assert parse_credentials(headers).token == KEY


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer " + KEY), (b"x-api-key", OTHER)],
        [(b"x-api-key", KEY), (b"x-api-key", OTHER)],
        [(b"authorization", b"Bearer " + KEY), (b"authorization", b"Bearer " + OTHER)],
        [(b"authorization", b"Bearer " + KEY), (b"authorization", b"Digest x")],
        [(b"authorization", KEY)],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer\t" + KEY)],
        [(b"authorization", b"Digest " + KEY)],
        [(b"authorization", b"Basic")],
        [(b"authorization", b"Basic !!!")],
        [(b"authorization", b"Basic " + base64.b64encode(KEY + b":")[:-1])],
        [(b"authorization", b"Basic \xff\xff")],
        [(b"authorization", basic(KEY))],
        [(b"authorization", basic(KEY + b":password"))],
        [(b"authorization", basic(b":" + KEY))],
        [(b"authorization", b"Bearer " + b"x" * 1_000_000)],
    ],
)
def test_headers_without_a_key_or_with_two_keys_are_rejected(headers: list[tuple[bytes, bytes]]) -> None:
    """Two different keys, a header without a space, Basic with a password or invalid base64."""
    with pytest.raises(Unauthorised) as refusal:
        parse_credentials(headers)

    assert refusal.value.headers["WWW-Authenticate"] == "Bearer"
    assert KEY.decode() not in repr(refusal.value)


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"x-api-key", b"accept"]), st.binary(max_size=90)), max_size=4))
def test_no_header_causes_an_internal_error(headers: list[tuple[bytes, bytes]]) -> None:
    """Nothing a caller sends makes a 500."""
    try:
        token = parse_credentials(headers).token
    except Unauthorised:
        return
    assert not (is_api_key(token) and is_agent_key(token))


@pytest.mark.parametrize(
    "token",
    [
        b"", b"sk_live_", KEY[:-1], KEY + b"x", b"sk_prod_" + b"x" * 32, b"SK_live_" + b"x" * 32, b"sk_live_" + b"x" * 31 + b"-",
        KEY + b"\n", b"sk_live_" + b"x" * 31 + b"\x00", b"sk_live_" + "ä".encode() * 16, b"x" * 73, b"sk_live_" + b"x" * 65,
        b"ak_" + b"x" * 31, b"ak_" + b"x" * 33, b"sk_live_" * 200_000,
    ],
)  # fmt: skip
def test_malformed_tokens_are_not_taken_for_keys(token: bytes) -> None:
    """Notes 3.1: 73 bytes, NUL and non-ASCII never reach bcrypt. The check is fast, whatever the length."""
    started = time.process_time()

    assert not is_api_key(token)
    assert not is_agent_key(token)
    assert time.process_time() - started < 1


def test_the_lookup_is_the_first_eight_characters_of_the_random_part() -> None:
    """For live and test keys alike."""
    assert get_lookup(b"sk_live_abcdefgh" + b"x" * 24) == "abcdefgh"
    assert get_lookup(b"sk_test_12345678" + b"x" * 24) == "12345678"


def test_forwarded_addresses_are_kept_in_order() -> None:
    """Several headers form one list."""
    credentials = parse_credentials([(b"x-forwarded-for", b"a"), (b"x-workspace-id", b"7"), (b"x-forwarded-for", b"b")])

    assert (credentials.token, credentials.forwarded, credentials.workspace) == (b"", [b"a", b"b"], b"7")
