"""Keys of the installation: created once, encrypted at rest."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rookery.engines.notification_channels.vapid import VapidKey
from rookery.kernel.db import Database
from rookery.kernel.sealing import KeyRotation, KeySource, Sealer
from rookery.notifications.installation_keys import InstallationKeyStore
from rookery.notifications.store import installation_keys as store
from tests.conftest import FakeClock


async def open_keys(database: Database, data_dir: Path, clock: FakeClock) -> InstallationKeyStore:
    """Return the keys as another process sees them."""
    sealer = Sealer(database, KeySource(data_dir, configured=None, previous=None), store.SEALED_COLUMNS, clock)
    await sealer.start()
    return InstallationKeyStore(database, sealer, clock)


async def test_all_processes_use_the_key_that_the_first_one_created(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """A second key would invalidate every subscription. The processes start at the same time."""
    processes = [await open_keys(database, data_dir, clock) for _ in range(5)]
    keys = await asyncio.gather(*(process.get_vapid_key() for process in processes))
    link_keys = await asyncio.gather(*(process.get_link_key() for process in processes))

    assert len({key.reveal() for key in keys}) == 1
    assert len(set(link_keys)) == 1
    assert VapidKey.parse(keys[0]).public_key
    assert link_keys[0] not in keys[0].reveal().encode()


async def test_keys_are_stored_encrypted_and_survive_a_rotation(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """`rookery secrets rotate` re-encrypts them with the new key."""
    keys = await open_keys(database, data_dir, clock)
    link_key = await keys.get_link_key()
    before = await database.read(lambda tx: store.find(tx, "links"))
    source = KeySource(data_dir, configured=None, previous=None)
    result = await KeyRotation(database, source, store.SEALED_COLUMNS, clock).rotate()
    after = await database.read(lambda tx: store.find(tx, "links"))

    assert before is not None
    assert link_key not in before
    assert result.resealed_count == 1
    assert before != after
    assert await (await open_keys(database, data_dir, clock)).get_link_key() == link_key
