"""The cache of verified keys: how often bcrypt runs, and no cached result outlives its key."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import update

from rookery.access.errors import KeySuspended, RateLimited, Unauthorised
from rookery.access.hashing import Bcrypt
from rookery.access.key_cache import KeyCacheLimits
from rookery.access.models import KeyWithSecret
from rookery.access.store.keys import add_key, keys
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, eventually

_SLOW_HASH = f"$2b$14${'.' * 53}"


def with_wrong_secret(new_key: KeyWithSecret, number: int = 0) -> str:
    """Return a key with the lookup of *new_key* and another secret."""
    return f"{new_key.plaintext.reveal()[:-6]}{number:06}"


async def test_two_hundred_requests_with_one_cold_key_run_bcrypt_once(access: Access) -> None:
    """Concurrent requests with the same uncached key share one bcrypt run (single flight)."""
    new_key = await access.create_api_key(await access.create_workspace())

    admissions = await asyncio.gather(*(access.admit(new_key) for _ in range(200)))

    assert {admission.caller.key_id for admission in admissions} == {new_key.key.id}
    assert access.bcrypt.run_count == 1


async def test_a_verified_key_runs_no_bcrypt(access: Access) -> None:
    """A verification is cached until the key was idle for 15 minutes."""
    new_key = await access.create_api_key(await access.create_workspace())
    await access.admit(new_key)
    for _ in range(3):
        access.clock.advance(minutes=14)
        await access.admit(new_key)
    assert access.bcrypt.run_count == 1
    access.clock.advance(minutes=16)
    await access.admit(new_key)

    assert access.bcrypt.run_count == 2


async def test_unknown_keys_run_no_bcrypt(access: Access) -> None:
    """Garbage reaches neither database nor bcrypt, well-formed garbage only one index read."""
    await access.create_api_key(await access.create_workspace())
    for number in range(100):
        with pytest.raises(Unauthorised):
            await access.admit(f"sk_live_{number:032}")

    assert access.bcrypt.run_count == 0


async def test_a_wrong_secret_is_checked_once_while_nothing_changes(access: Access) -> None:
    """Notes 3.3, step 4: a failure is cached for 30 s and charged once."""
    new_key = await access.create_api_key(await access.create_workspace())
    for _ in range(50):
        with pytest.raises(Unauthorised):
            await access.admit(with_wrong_secret(new_key))
    assert access.bcrypt.run_count == 1
    access.clock.advance(seconds=30)
    with pytest.raises(Unauthorised):
        await access.admit(with_wrong_secret(new_key))

    assert access.bcrypt.run_count == 2


async def test_a_cached_failure_does_not_hide_a_newer_key(access: Access) -> None:
    """Notes 3.5: a cached failure is valid only while its rows are unchanged."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    other_secret = replace(new_key, plaintext=Secret(with_wrong_secret(new_key)))
    with pytest.raises(Unauthorised):
        await access.admit(other_secret)
    key_hash = await access.bcrypt.hash(other_secret.plaintext)
    newer_key = replace(new_key.key, id="zz-made-since")
    lookup = new_key.plaintext.reveal()[8:16]
    await access.db.write(lambda tx: add_key(tx, newer_key, lookup=lookup, key_hash=key_hash))

    assert (await access.admit(other_secret)).caller.key_id == newer_key.id
    assert (await access.admit(new_key)).caller.key_id == new_key.key.id


async def test_wrong_secrets_use_only_the_failure_budget_of_their_address(access: Access) -> None:
    """Over the budget 429 with Retry-After, before bcrypt. Other addresses and verified keys are admitted."""
    workspace = await access.create_workspace()
    verified, unverified = await access.create_api_key(workspace), await access.create_api_key(workspace)
    await access.admit(verified)
    for number in range(10):
        with pytest.raises(Unauthorised):
            await access.admit(with_wrong_secret(unverified, number))
    runs = access.bcrypt.run_count

    for token_or_key in (with_wrong_secret(unverified, 99), unverified):
        with pytest.raises(RateLimited) as refusal:
            await access.admit(token_or_key)
        assert refusal.value.headers == {"Retry-After": "60"}
    assert access.bcrypt.run_count == runs
    await access.admit(verified)
    await access.admit(unverified, address="192.0.2.2")
    access.clock.advance(seconds=60)
    await access.admit(unverified)


async def test_the_budget_of_an_address_covers_all_lookups(access: Access) -> None:
    """Notes 3.3, step 5: per address and per (address, lookup); an IPv6 client owns its /64."""
    workspace = await access.create_workspace()
    new_keys = [await access.create_api_key(workspace) for _ in range(5)]
    for number in range(30):
        with pytest.raises(Unauthorised):
            await access.admit(with_wrong_secret(new_keys[number % 4], number), address=f"2001:db8::{number + 1:x}")

    with pytest.raises(RateLimited):
        await access.admit(new_keys[4], address="2001:db8::ffff")
    await access.admit(new_keys[4], address="2001:db8:0:1::1")


async def test_a_burst_of_wrong_secrets_runs_no_more_bcrypt_than_the_budget(access: Access) -> None:
    """Notes 3.3: the budget is checked again before each verification, one at a time per lookup."""
    new_key = await access.create_api_key(await access.create_workspace())

    results = await asyncio.gather(*(access.admit(with_wrong_secret(new_key, number)) for number in range(50)), return_exceptions=True)

    assert access.bcrypt.run_count == 10
    assert sorted({type(result).__name__ for result in results}) == ["RateLimited", "Unauthorised"]


async def test_too_many_unverified_keys_at_once_get_503(access: Access) -> None:
    """The pool is bounded: 503 with Retry-After 1, and the event loop continues."""
    new_key = await access.create_api_key(await access.create_workspace())

    async with asyncio.TaskGroup() as group:
        for _ in range(2):  # Both threads are busy for a second each, so that the queue empties slowly.
            group.create_task(access.bcrypt.matches(b"sk_live_x", _SLOW_HASH))
        results = await asyncio.gather(
            *(access.admit(with_wrong_secret(new_key, number), address=f"192.0.2.{number}") for number in range(100)),
            return_exceptions=True,
        )
    unavailable = [result for result in results if isinstance(result, EngineUnavailable)]

    # The queue has room for 64. On PostgreSQL a first one may be done before the last request.
    assert 30 <= len(unavailable) <= 36
    assert unavailable[0].headers == {"Retry-After": "1"}
    assert access.bcrypt.run_count == 2 + 100 - len(unavailable)


async def test_bcrypt_rejects_work_when_its_queue_is_full() -> None:
    """The result is the same for every caller."""
    bcrypt = Bcrypt(cost=4, threads=1, queue=2)

    results = await asyncio.gather(*(bcrypt.hash(Secret("sk_live_x")) for _ in range(5)), return_exceptions=True)

    assert [isinstance(result, EngineUnavailable) for result in results] == [False, False, False, True, True]
    bcrypt.close()
    bcrypt.close()


@pytest.mark.parametrize(
    "key_hash",
    ["", "x", "$2b$10$short", "$2b$31$" + "a" * 53, "$2b$15$" + "a" * 53, "$2b$03$" + "a" * 53, "$1$04$" + "a" * 53, "$2b$04$" + "ü" * 53],
)
async def test_an_invalid_stored_hash_matches_nothing(key_hash: str) -> None:
    """Notes 3.1: a malformed hash raises inside bcrypt, and a cost of 31 takes days; neither is run."""
    bcrypt = Bcrypt(cost=4)

    assert not await bcrypt.matches(b"sk_live_" + b"x" * 32, key_hash)
    assert bcrypt.run_count == 0


async def test_a_hash_that_bcrypt_rejects_matches_nothing(access: Access) -> None:
    """Notes 3.1: bcrypt raises on a salt it cannot read, and on more than 72 bytes."""
    assert not await access.bcrypt.matches(b"sk_live_" + b"x" * 32, "$2b$04$" + "z" * 53)
    assert not await access.bcrypt.matches(b"x" * 73, "$2b$04$" + "a" * 53)


class SlowBcrypt(Bcrypt):
    """A bcrypt that waits for an event before it returns."""

    def __init__(self) -> None:
        super().__init__(cost=4)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def matches(self, token: bytes, key_hash: str) -> bool:
        """Check, then wait."""
        is_match = await super().matches(token, key_hash)
        self.reached.set()
        await self.go.wait()
        return is_match


@pytest.mark.parametrize(("change", "expected_error"), [("suspend", KeySuspended), ("delete", Unauthorised)])
async def test_a_change_of_the_key_while_bcrypt_runs_takes_effect(access: Access, change: str, expected_error: type[Unauthorised]) -> None:
    """Notes 3.5: the row is read again after the comparison."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    bcrypt = SlowBcrypt()
    slow_access = build_access(access.db, access.counter, access.clock, bcrypt=bcrypt)
    admission = asyncio.create_task(slow_access.admit(new_key))
    await bcrypt.reached.wait()
    await (access.api_keys.suspend if change == "suspend" else access.api_keys.delete)(workspace, new_key.key.id, by=OPERATOR)
    bcrypt.go.set()

    with pytest.raises(Unauthorised) as error:
        await admission
    assert type(error.value) is expected_error
    await slow_access.close()


async def test_closing_cancels_running_verifications(access: Access) -> None:
    """House, 6: every task has an owner that cancels it."""
    new_key = await access.create_api_key(await access.create_workspace())
    bcrypt = SlowBcrypt()
    slow_access = build_access(access.db, access.counter, access.clock, bcrypt=bcrypt)
    admission = asyncio.create_task(slow_access.admit(new_key))
    await bcrypt.reached.wait()
    await slow_access.close()

    with pytest.raises(asyncio.CancelledError):
        await admission


async def test_cached_verifications_and_failures_are_bounded(access: Access) -> None:
    """Notes 3.3: the least recently used entry is evicted first, then bcrypt runs again. Idle entries are removed too."""
    limits = KeyCacheLimits(max_verified_keys=2, max_rejected_tokens=1)
    bounded = build_access(access.db, access.counter, access.clock, cache_limits=limits)
    workspace = await access.create_workspace()
    first, second, third = [await access.create_api_key(workspace) for _ in range(3)]
    for new_key in (first, second, first, third, first):
        await bounded.admit(new_key)
    assert bounded.bcrypt.run_count == 3
    await bounded.admit(second)
    assert bounded.bcrypt.run_count == 4
    for number in (1, 2, 1):
        with pytest.raises(Unauthorised):
            await bounded.admit(with_wrong_secret(first, number))
    assert bounded.bcrypt.run_count == 7
    access.clock.advance(minutes=16)
    await bounded.admit(third)
    assert bounded.bcrypt.run_count == 8
    await bounded.close()


async def test_replacing_the_hash_invalidates_the_verification(access: Access) -> None:
    """Notes 3.3: a verification is valid for one hash. Another hash under the same id needs a verification of its own."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    await access.admit(new_key)
    other_hash = await access.bcrypt.hash(Secret("sk_live_" + "o" * 32))
    await access.db.write(lambda tx: tx.execute(update(keys).where(keys.c.id == new_key.key.id).values(key_hash=other_hash)))

    with pytest.raises(Unauthorised):
        await access.admit(new_key)


async def test_a_key_created_again_under_the_same_id_is_another_key(access: Access) -> None:
    """Notes 3.5: a cached verification after deleting and re-creating the key with the same id."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    await access.admit(new_key)
    await access.api_keys.delete(workspace, new_key.key.id, by=OPERATOR)
    other_secret = Secret(with_wrong_secret(new_key))
    key_hash = await access.bcrypt.hash(other_secret)
    await access.db.write(lambda tx: add_key(tx, new_key.key, lookup=new_key.plaintext.reveal()[8:16], key_hash=key_hash))

    with pytest.raises(Unauthorised):
        await access.admit(new_key)
    assert (await access.admit(other_secret.reveal())).caller.key_id == new_key.key.id


async def test_a_cancelled_request_does_not_cancel_a_shared_verification(access: Access) -> None:
    """Other requests still wait for it."""
    new_key = await access.create_api_key(await access.create_workspace())
    first, second = (asyncio.create_task(access.admit(new_key)) for _ in range(2))
    await eventually(lambda: access.bcrypt.run_count >= 1)
    first.cancel()

    assert (await second).caller.key_id == new_key.key.id
    assert access.bcrypt.run_count == 1


async def test_a_response_does_not_reveal_the_correct_prefix_of_a_secret(access: Access) -> None:
    """The same path for any shared prefix: one run of bcrypt, one charge, one error; then no run."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()
    agent = (await access.create_agent_key(await access.create_workspace("other"))).plaintext.reveal()
    error_texts = set[str]()
    for length in range(len("sk_live_") + 8, len(token)):
        guess = token[:length] + ("a" if token[length] != "a" else "b") + "x" * (len(token) - length - 1)
        runs = access.bcrypt.run_count
        for _ in range(2):
            error_texts.add(await error_text(access, guess, address=f"192.0.2.{length}"))
        assert access.bcrypt.run_count == runs + 1
    assert len(error_texts) == 1

    # An unknown lookup runs no bcrypt, so its duration reveals that no key has this prefix. Lists show the prefixes of keys anyway.
    runs = access.bcrypt.run_count
    error_texts.add(await error_text(access, "sk_live_" + "x" * 32))
    guesses = [agent[:length] + ("a" if agent[length] != "a" else "b") + "x" * (len(agent) - length - 1) for length in range(3, len(agent))]
    error_texts.update([await error_text(access, guess) for guess in guesses])
    assert (len(error_texts), access.bcrypt.run_count) == (1, runs)


async def error_text(access: Access, token: str, address: str = "192.0.2.1") -> str:
    """Return the whole error that the caller gets."""
    with pytest.raises(Unauthorised) as refusal:
        await access.admit(token, address=address)
    error = refusal.value
    return f"{type(error)} {error.status} {error.body()} {error.headers}"


async def test_an_address_over_its_budget_gets_the_same_error_for_any_secret(access: Access) -> None:
    """The same 429 for a right and a wrong secret. An unknown key stays 401 and spends no budget."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    for number in range(10):
        await error_text(access, with_wrong_secret(new_key, number))
    error_texts = list[str]()
    for token in (with_wrong_secret(new_key, 99), new_key.plaintext.reveal()):
        with pytest.raises(RateLimited) as refusal:
            await access.admit(token)
        error_texts.append(f"{refusal.value.body()} {refusal.value.headers}")

    assert error_texts[0] == error_texts[1]
    for _ in range(40):
        await error_text(access, "sk_live_" + "x" * 32)
    await access.admit(await access.create_api_key(workspace))


async def test_each_process_has_its_own_cache(access: Access) -> None:
    """The pepper is random per process and never shared."""
    new_key = await access.create_api_key(await access.create_workspace())
    await access.admit(new_key)
    other_access = build_access(access.db, access.counter, access.clock)
    await other_access.admit(new_key)

    assert other_access.bcrypt.run_count == 1
    await other_access.close()
