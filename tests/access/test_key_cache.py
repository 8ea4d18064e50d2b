"""The proof of an API key's secret: how often bcrypt runs, and that no cache ever outlives what it proves (D-20; notes, 3.3, 3.5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import update

from rookery.access.errors import KeyRevoked, RateLimited, Unauthorised
from rookery.access.hashing import Bcrypt
from rookery.access.models import KeyWithSecret
from rookery.access.store.keys import add_key, keys
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, eventually


def wrong(minted: KeyWithSecret, number: int = 0) -> str:
    """Return a key with the lookup of *minted* and another secret."""
    return f"{minted.plaintext.reveal()[:-6]}{number:06}"


async def test_two_hundred_requests_with_one_cold_key_run_bcrypt_once(access: Access) -> None:
    """Concurrent requests with the same uncached key share one bcrypt run (single flight, D-20)."""
    minted = await access.create_api_key(await access.create_workspace())

    admitted = await asyncio.gather(*(access.admit(minted) for _ in range(200)))

    assert {each.caller.key_id for each in admitted} == {minted.key.id}
    assert access.bcrypt.run_count == 1


async def test_a_proven_key_runs_no_bcrypt(access: Access) -> None:
    """D-20: the proof is kept, but not for ever: 15 idle minutes end it."""
    minted = await access.create_api_key(await access.create_workspace())
    await access.admit(minted)
    for _ in range(3):
        access.clock.advance(minutes=14)
        await access.admit(minted)
    assert access.bcrypt.run_count == 1
    access.clock.advance(minutes=16)
    await access.admit(minted)

    assert access.bcrypt.run_count == 2


async def test_unknown_keys_run_no_bcrypt(access: Access) -> None:
    """D-20: garbage reaches neither database nor bcrypt, well-formed garbage only one index read."""
    await access.create_api_key(await access.create_workspace())
    for number in range(100):
        with pytest.raises(Unauthorised):
            await access.admit(f"sk_live_{number:032}")

    assert access.bcrypt.run_count == 0


async def test_a_wrong_secret_is_checked_once_while_nothing_changes(access: Access) -> None:
    """Notes 3.3, step 4: refusals are remembered for 30 s, and charged once."""
    minted = await access.create_api_key(await access.create_workspace())
    for _ in range(50):
        with pytest.raises(Unauthorised):
            await access.admit(wrong(minted))
    assert access.bcrypt.run_count == 1
    access.clock.advance(seconds=30)
    with pytest.raises(Unauthorised):
        await access.admit(wrong(minted))

    assert access.bcrypt.run_count == 2


async def test_a_refusal_does_not_hide_a_key_made_since(access: Access) -> None:
    """Notes 3.5: a remembered refusal holds only while the rows it was made of are unchanged."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    other = replace(minted, plaintext=Secret(wrong(minted)))
    with pytest.raises(Unauthorised):
        await access.admit(other)
    key_hash = await access.bcrypt.hash(other.plaintext)
    later = replace(minted.key, id="zz-made-since")
    lookup = minted.plaintext.reveal()[8:16]
    await access.db.write(lambda tx: add_key(tx, later, lookup=lookup, key_hash=key_hash))

    assert (await access.admit(other)).caller.key_id == later.id
    assert (await access.admit(minted)).caller.key_id == minted.key.id


async def test_wrong_secrets_use_up_the_budget_of_their_address_alone(access: Access) -> None:
    """D-20: over it 429 with Retry-After, before bcrypt; other addresses and proven keys go on."""
    workspace = await access.create_workspace()
    warm, cold = await access.create_api_key(workspace), await access.create_api_key(workspace)
    await access.admit(warm)
    for number in range(10):
        with pytest.raises(Unauthorised):
            await access.admit(wrong(cold, number))
    runs = access.bcrypt.run_count

    for presented in (wrong(cold, 99), cold):
        with pytest.raises(RateLimited) as refusal:
            await access.admit(presented)
        assert refusal.value.headers == {"Retry-After": "60"}
    assert access.bcrypt.run_count == runs
    await access.admit(warm)
    await access.admit(cold, address="192.0.2.2")
    access.clock.advance(seconds=60)
    await access.admit(cold)


async def test_the_budget_of_an_address_covers_all_lookups(access: Access) -> None:
    """Notes 3.3, step 5: per address and per (address, lookup); an IPv6 client owns its /64."""
    workspace = await access.create_workspace()
    minted = [await access.create_api_key(workspace) for _ in range(5)]
    for number in range(30):
        with pytest.raises(Unauthorised):
            await access.admit(wrong(minted[number % 4], number), address=f"2001:db8::{number + 1:x}")

    with pytest.raises(RateLimited):
        await access.admit(minted[4], address="2001:db8::ffff")
    await access.admit(minted[4], address="2001:db8:0:1::1")


async def test_a_burst_of_wrong_secrets_runs_no_more_bcrypt_than_the_budget(access: Access) -> None:
    """Notes 3.3: the budget is looked at again when a check's turn comes, one at a time for each lookup."""
    minted = await access.create_api_key(await access.create_workspace())

    refused = await asyncio.gather(*(access.admit(wrong(minted, number)) for number in range(50)), return_exceptions=True)

    assert access.bcrypt.run_count == 10
    assert sorted({type(each).__name__ for each in refused}) == ["RateLimited", "Unauthorised"]


async def test_too_many_cold_keys_at_once_are_put_off(access: Access) -> None:
    """D-20: a bounded pool: 503 with Retry-After 1, and the event loop goes on."""
    minted = await access.create_api_key(await access.create_workspace())

    refused = await asyncio.gather(
        *(access.admit(wrong(minted, number), address=f"192.0.2.{number}") for number in range(100)), return_exceptions=True
    )
    full = [each for each in refused if isinstance(each, EngineUnavailable)]

    # 64 fit in at once; on PostgreSQL a first one may be done before the last one asks.
    assert 30 <= len(full) <= 36
    assert full[0].headers == {"Retry-After": "1"}
    assert access.bcrypt.run_count == 100 - len(full)


async def test_bcrypt_itself_refuses_to_queue_without_bound() -> None:
    """D-20: the result is the same for every caller."""
    bcrypt = Bcrypt(cost=4, threads=1, queue=2)

    done = await asyncio.gather(*(bcrypt.hash(Secret("sk_live_x")) for _ in range(5)), return_exceptions=True)

    assert [isinstance(each, EngineUnavailable) for each in done] == [False, False, False, True, True]
    bcrypt.close()
    bcrypt.close()


@pytest.mark.parametrize(
    "key_hash",
    ["", "x", "$2b$10$short", "$2b$31$" + "a" * 53, "$2b$15$" + "a" * 53, "$2b$03$" + "a" * 53, "$1$04$" + "a" * 53, "$2b$04$" + "ü" * 53],
)
async def test_a_stored_hash_out_of_bounds_matches_nothing(key_hash: str) -> None:
    """Notes 3.1: a malformed hash raises inside bcrypt, a cost of 31 takes days: neither is run."""
    bcrypt = Bcrypt(cost=4)

    assert not await bcrypt.matches(b"sk_live_" + b"x" * 32, key_hash)
    assert bcrypt.run_count == 0


async def test_a_hash_that_bcrypt_refuses_matches_nothing(access: Access) -> None:
    """Notes 3.1: bcrypt raises on a salt it cannot read, and on more than 72 bytes."""
    assert not await access.bcrypt.matches(b"sk_live_" + b"x" * 32, "$2b$04$" + "z" * 53)
    assert not await access.bcrypt.matches(b"x" * 73, "$2b$04$" + "a" * 53)


class SlowBcrypt(Bcrypt):
    """bcrypt that, after its work, waits until it is told to answer."""

    def __init__(self) -> None:
        super().__init__(cost=4)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def matches(self, token: bytes, key_hash: str) -> bool:
        """Check, then wait."""
        found = await super().matches(token, key_hash)
        self.reached.set()
        await self.go.wait()
        return found


@pytest.mark.parametrize(("change", "refusal"), [("suspend", KeyRevoked), ("delete", Unauthorised)])
async def test_what_happens_to_a_key_while_bcrypt_runs_counts(access: Access, change: str, refusal: type[Unauthorised]) -> None:
    """Notes 3.5: the row is read again after the match."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    bcrypt = SlowBcrypt()
    slow = build_access(access.db, access.counter, access.clock, bcrypt=bcrypt)
    arriving = asyncio.create_task(slow.admit(minted))
    await bcrypt.reached.wait()
    await (access.api_keys.suspend if change == "suspend" else access.api_keys.delete)(workspace, minted.key.id, by=OPERATOR)
    bcrypt.go.set()

    with pytest.raises(Unauthorised) as refused:
        await arriving
    assert type(refused.value) is refusal
    await slow.close()


async def test_stopping_ends_the_checks_that_run(access: Access) -> None:
    """House, 6: every task has an owner, who ends it."""
    minted = await access.create_api_key(await access.create_workspace())
    bcrypt = SlowBcrypt()
    slow = build_access(access.db, access.counter, access.clock, bcrypt=bcrypt)
    arriving = asyncio.create_task(slow.admit(minted))
    await bcrypt.reached.wait()
    await slow.close()

    with pytest.raises(asyncio.CancelledError):
        await arriving


async def test_proofs_and_refusals_are_bounded(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes 3.3: the proof used longest ago goes first, and idle ones with the next; then bcrypt runs again."""
    monkeypatch.setattr("rookery.access.key_cache._MAX_VERIFIED_KEYS", 2)
    monkeypatch.setattr("rookery.access.key_cache._MAX_REJECTED_TOKENS", 1)
    workspace = await access.create_workspace()
    first, second, third = [await access.create_api_key(workspace) for _ in range(3)]
    for minted in (first, second, first, third, first):
        await access.admit(minted)
    assert access.bcrypt.run_count == 3
    await access.admit(second)
    assert access.bcrypt.run_count == 4
    for number in (1, 2, 1):
        with pytest.raises(Unauthorised):
            await access.admit(wrong(first, number))
    assert access.bcrypt.run_count == 7
    access.clock.advance(minutes=16)
    await access.admit(third)
    assert access.bcrypt.run_count == 8


async def test_a_hash_replaced_in_place_ends_the_proof(access: Access) -> None:
    """Notes 3.3: the proof is of one hash; another one under the same id needs a proof of its own."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    await access.admit(minted)
    other = await access.bcrypt.hash(Secret("sk_live_" + "o" * 32))
    await access.db.write(lambda tx: tx.execute(update(keys).where(keys.c.id == minted.key.id).values(key_hash=other)))

    with pytest.raises(Unauthorised):
        await access.admit(minted)


async def test_a_key_made_again_under_the_same_id_is_another_key(access: Access) -> None:
    """Notes 3.5: cached proof after delete and re-create with the same id."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    await access.admit(minted)
    await access.api_keys.delete(workspace, minted.key.id, by=OPERATOR)
    other = Secret(wrong(minted))
    key_hash = await access.bcrypt.hash(other)
    await access.db.write(lambda tx: add_key(tx, minted.key, lookup=minted.plaintext.reveal()[8:16], key_hash=key_hash))

    with pytest.raises(Unauthorised):
        await access.admit(minted)
    assert (await access.admit(other.reveal())).caller.key_id == minted.key.id


async def test_who_hangs_up_does_not_harm_the_others(access: Access) -> None:
    """D-20: a shared check is not cancelled with one of its waiters."""
    minted = await access.create_api_key(await access.create_workspace())
    first, second = (asyncio.create_task(access.admit(minted)) for _ in range(2))
    await eventually(lambda: access.bcrypt.run_count >= 1)
    first.cancel()

    assert (await second).caller.key_id == minted.key.id
    assert access.bcrypt.run_count == 1


async def test_how_much_of_a_wrong_secret_is_right_cannot_be_told(access: Access) -> None:
    """D-20: whatever prefix it shares with the right one, the same path: one run of bcrypt, one charge, one refusal; then none."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()
    agent = (await access.create_agent_key(await access.create_workspace("other"))).plaintext.reveal()
    told = set[str]()
    for length in range(len("sk_live_") + 8, len(token)):
        guess = token[:length] + ("a" if token[length] != "a" else "b") + "x" * (len(token) - length - 1)
        runs = access.bcrypt.run_count
        for _ in range(2):
            told.add(await refusal_of(access, guess, address=f"192.0.2.{length}"))
        assert access.bcrypt.run_count == runs + 1
    assert len(told) == 1

    # An unknown lookup costs nobody bcrypt, so its time tells that no key begins so; lists show how keys begin anyway.
    runs = access.bcrypt.run_count
    told.add(await refusal_of(access, "sk_live_" + "x" * 32))
    guesses = [agent[:length] + ("a" if agent[length] != "a" else "b") + "x" * (len(agent) - length - 1) for length in range(3, len(agent))]
    told.update([await refusal_of(access, guess) for guess in guesses])
    assert (len(told), access.bcrypt.run_count) == (1, runs)


async def refusal_of(access: Access, token: str, address: str = "192.0.2.1") -> str:
    """Return all that the caller is told."""
    with pytest.raises(Unauthorised) as refusal:
        await access.admit(token, address=address)
    error = refusal.value
    return f"{type(error)} {error.status} {error.body()} {error.headers}"


async def test_an_address_that_guessed_too_often_is_told_that_alone(access: Access) -> None:
    """D-20: 429 in the same words for a right and a wrong secret; what is unknown altogether stays 401 and spends no budget."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    for number in range(10):
        await refusal_of(access, wrong(minted, number))
    told = list[str]()
    for presented in (wrong(minted, 99), minted.plaintext.reveal()):
        with pytest.raises(RateLimited) as refusal:
            await access.admit(presented)
        told.append(f"{refusal.value.body()} {refusal.value.headers}")

    assert told[0] == told[1]
    for _ in range(40):
        await refusal_of(access, "sk_live_" + "x" * 32)
    await access.admit(await access.create_api_key(workspace))


async def test_another_process_s_proofs_are_its_own(access: Access) -> None:
    """D-20: the pepper is random per process and never shared."""
    minted = await access.create_api_key(await access.create_workspace())
    await access.admit(minted)
    other = build_access(access.db, access.counter, access.clock)
    await other.admit(minted)

    assert other.bcrypt.run_count == 1
    await other.close()
