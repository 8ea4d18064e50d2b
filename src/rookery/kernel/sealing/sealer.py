"""The encryption and decryption of values for the domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import WrongSettings
from rookery.kernel.sealing import store
from rookery.kernel.sealing.columns import SealedColumn
from rookery.kernel.sealing.key_source import KeySource
from rookery.kernel.sealing.keys import HEAD_BYTES, DecryptionFailed, SealContext, SecretKey, parse_key_id


class Sealer:
    """
    Encrypts with the key that the record store names as the current one, and decrypts with any available key.

    A key created by another process is loaded when a value needs it. Loaded keys are cached until this process exits.
    """

    def __init__(self, db: Database, source: KeySource, columns: Sequence[SealedColumn], clock: Clock) -> None:
        self._db = db
        self._source = source
        self._columns = columns
        self._clock = clock
        self._keys: Mapping[str, SecretKey] = {}

    async def start(self) -> None:
        """
        Create the first key of this record store if it has none.

        Raises:
            WrongSettings: A key that the record store needs is not available.
        """
        state = await self._db.lookup(store.get_state)
        if state is None:
            first, now = self._source.get_or_create_first(), to_micros(self._clock())
            await self._db.write(lambda tx: store.insert_state(tx, first.id, now_us=now))
            state = await self._db.lookup(store.get_state)
        self._keys = self._source.load_keys()
        if state is not None and state.key_id not in self._keys:
            raise WrongSettings(self._missing_key_message(state.key_id))
        if state is not None and state.previous_id is not None and state.previous_id not in self._keys:
            await self._require_unused(state.previous_id)

    def seal(self, tx: Tx, text: bytes, context: SealContext) -> bytes:
        """
        Encrypt *text* for *context*. Store the result in the same transaction, so that no key rotation comes between.

        Raises:
            DecryptionFailed: The current key is not available.
        """
        state = store.lock_state(tx)
        if state is None:
            raise DecryptionFailed("no secret key has been created yet")
        return self._get_key(state.key_id).seal(text, context)

    async def seal_token(self, text: bytes, context: SealContext) -> bytes:
        """
        Encrypt *text*, which a client stores instead of this server. After a key rotation it can no longer be decrypted.

        Raises:
            DecryptionFailed: The current key is not available.
        """
        state = await self._db.lookup(store.get_state)
        if state is None:
            raise DecryptionFailed("no secret key has been created yet")
        return self._get_key(state.key_id).seal(text, context)

    def open(self, sealed: bytes, context: SealContext) -> bytes:
        """
        Decrypt a value that was encrypted for *context*.

        Raises:
            DecryptionFailed: The key is not available, the value is damaged, or it was encrypted for another place.
        """
        key_id = parse_key_id(sealed[:HEAD_BYTES])
        if key_id is None:
            raise DecryptionFailed(f"an encrypted {context.purpose} is damaged")
        return self._get_key(key_id).open(sealed, context)

    def _get_key(self, key_id: str) -> SecretKey:
        key = self._keys.get(key_id)
        if key is None:
            try:
                self._keys = {**self._keys, **self._source.load_keys()}
            except WrongSettings as error:
                raise DecryptionFailed(error.message) from error
            key = self._keys.get(key_id)
        if key is None:
            raise DecryptionFailed(f"the secret key {key_id} is not available; run `rookery doctor` for details")
        return key

    async def _require_unused(self, key_id: str) -> None:
        """Check that no value needs *key_id*, the previous key of a rotation that was interrupted after re-encryption."""
        for column in self._columns:
            if key_id in {parse_key_id(head) for head in await self._db.read(column.count_by_head)}:
                raise WrongSettings(self._missing_key_message(key_id))

    def _missing_key_message(self, key_id: str) -> str:
        problem = (
            "ROOKERY_SECRET_KEY is another key" if self._source.configured_key else f"{self._source.path} is missing or holds another key"
        )
        return (
            f"The values in the record store are encrypted with the secret key {key_id}, but {problem}. Restore that key, or set "
            "ROOKERY_SECRET_KEY_PREVIOUS to it. If it is lost, `rookery secrets rotate --lost` deletes the values that it encrypted."
        )
