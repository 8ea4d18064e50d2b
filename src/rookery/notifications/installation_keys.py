"""Keys that the whole installation has, created at first use and stored encrypted."""

from __future__ import annotations

import base64
import os

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.sealing import SealContext, Sealer
from rookery.kernel.secret import Secret
from rookery.notifications.store import installation_keys as store

_VAPID, _LINKS = "vapid", "links"
_KEY_BYTES = 32
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class InstallationKeyStore:
    """The keys of all processes on one record store. Each is decrypted once per process."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock
        self._keys: dict[str, bytes] = {}

    async def get_vapid_key(self) -> Secret:
        """Return the private key of Web Push, 32 bytes in base64url; a valid scalar of P-256."""
        return Secret(base64.urlsafe_b64encode(await self._get_or_create(_VAPID)).rstrip(b"=").decode())

    async def has_vapid_key(self) -> bool:
        """Return whether the private key of Web Push was created. Creates nothing."""
        return await self._db.lookup(lambda tx: store.find(tx, _VAPID)) is not None

    async def get_link_key(self) -> bytes:
        """Return the key that signs links to public pages."""
        return await self._get_or_create(_LINKS)

    async def _get_or_create(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            sealed = await self._db.lookup(lambda tx: store.find(tx, key_id))
            if sealed is None:
                sealed = await self._db.write(lambda tx: self._create(tx, key_id))
            self._keys[key_id] = self._sealer.open(sealed, _context(key_id))
        return self._keys[key_id]

    def _create(self, tx: Tx, key_id: str) -> bytes:
        sealed = self._sealer.seal(tx, _generate_key(), _context(key_id))
        store.insert_key(tx, key_id, sealed, now_us=to_micros(self._clock()))
        return store.find(tx, key_id) or sealed


def _generate_key() -> bytes:
    while not 0 < int.from_bytes(key := os.urandom(_KEY_BYTES)) < _P256_ORDER:
        pass
    return key


def _context(key_id: str) -> SealContext:
    return SealContext(store.KEY_PURPOSE, store.INSTALLATION, key_id)
