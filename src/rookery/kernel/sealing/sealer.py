"""What domains seal and open with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import WrongSettings
from rookery.kernel.sealing import store
from rookery.kernel.sealing.columns import SealedColumn
from rookery.kernel.sealing.keys import HEAD_BYTES, Place, SecretKey, Unreadable, id_of
from rookery.kernel.sealing.source import KeySource


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
        self._known: Mapping[str, SecretKey] = {}

    async def start(self) -> None:
        """
        Make the first key of this record store, if it has none.

        Raises:
            WrongSettings: It has one that is not here.
        """
        state = await self._db.quick(store.state)
        if state is None:
            first, now = self._source.first(), to_micros(self._clock())
            await self._db.write(lambda tx: store.begin(tx, first.id, at=now))
            state = await self._db.quick(store.state)
        self._known = self._source.read()
        if state is not None and state.key_id not in self._known:
            raise WrongSettings(self._missing(state.key_id))
        if state is not None and state.previous_id is not None and state.previous_id not in self._known:
            await self._must_be_unused(state.previous_id)

    def seal(self, tx: Tx, text: bytes, place: Place) -> bytes:
        """
        Return *text* sealed for *place*, to be stored by the same transaction: no change of keys comes between.

        Raises:
            Unreadable: The key of now is not here.
        """
        state = store.held(tx)
        if state is None:
            raise Unreadable("no secret key was made yet")
        return self._key(state.key_id).seal(text, place)

    def open(self, sealed: bytes, place: Place) -> bytes:
        """
        Return what was sealed for *place*.

        Raises:
            Unreadable: By a key that is not here; or it is damaged, or was sealed for another place.
        """
        key_id = id_of(sealed[:HEAD_BYTES])
        if key_id is None:
            raise Unreadable(f"a sealed {place.what} is damaged")
        return self._key(key_id).open(sealed, place)

    def _key(self, key_id: str) -> SecretKey:
        key = self._known.get(key_id)
        if key is None:
            try:
                self._known = {**self._known, **self._source.read()}
            except WrongSettings as error:
                raise Unreadable(error.message) from error
            key = self._known.get(key_id)
        if key is None:
            raise Unreadable(f"the secret key {key_id} is not here; `rookery doctor` says more")
        return key

    async def _must_be_unused(self, key_id: str) -> None:
        """Do nothing if a change of keys was interrupted only after everything was sealed by the new one."""
        for column in self._columns:
            if key_id in {id_of(head) for head in await self._db.read(column.heads)}:
                raise WrongSettings(self._missing(key_id))

    def _missing(self, key_id: str) -> str:
        where = "ROOKERY_SECRET_KEY is another" if self._source.chosen else f"{self._source.path} is another, or missing"
        return (
            f"What is sealed in the record store asks for the secret key {key_id}, and {where}. Bring that key back, or name it in "
            "ROOKERY_SECRET_KEY_PREVIOUS; if it is lost, `rookery secrets rotate --lost` deletes what it sealed."
        )
