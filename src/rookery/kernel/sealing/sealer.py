"""What domains seal and open with."""

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
    Seals with the key that the record store names at that moment, and opens with any that is there.

    A key that another process has just made is read when a text asks for it; one that was read is known until this process ends.
    """

    def __init__(self, db: Database, source: KeySource, columns: Sequence[SealedColumn], clock: Clock) -> None:
        self._db = db
        self._source = source
        self._columns = tuple(columns)
        self._clock = clock
        self._keys: Mapping[str, SecretKey] = {}

    async def start(self) -> None:
        """
        Make the first key of this record store, if it has none.

        Raises:
            WrongSettings: It has one that is not here.
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
        Return *text* sealed for *context*, to be stored by the same transaction: no change of keys comes between.

        Raises:
            Unreadable: The key of now is not here.
        """
        state = store.lock_state(tx)
        if state is None:
            raise DecryptionFailed("no secret key was made yet")
        return self._get_key(state.key_id).seal(text, context)

    def open(self, sealed: bytes, context: SealContext) -> bytes:
        """
        Return what was sealed for *context*.

        Raises:
            Unreadable: By a key that is not here; or it is damaged, or was sealed for another place.
        """
        key_id = parse_key_id(sealed[:HEAD_BYTES])
        if key_id is None:
            raise DecryptionFailed(f"a sealed {context.purpose} is damaged")
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
            raise DecryptionFailed(f"the secret key {key_id} is not here; `rookery doctor` says more")
        return key

    async def _require_unused(self, key_id: str) -> None:
        """Do nothing if a change of keys was interrupted only after everything was sealed by the new one."""
        for column in self._columns:
            if key_id in {parse_key_id(head) for head in await self._db.read(column.count_by_head)}:
                raise WrongSettings(self._missing_key_message(key_id))

    def _missing_key_message(self, key_id: str) -> str:
        where = "ROOKERY_SECRET_KEY is another" if self._source.configured_key else f"{self._source.path} is another, or missing"
        return (
            f"What is sealed in the record store asks for the secret key {key_id}, and {where}. Bring that key back, or name it in "
            "ROOKERY_SECRET_KEY_PREVIOUS; if it is lost, `rookery secrets rotate --lost` deletes what it sealed."
        )
