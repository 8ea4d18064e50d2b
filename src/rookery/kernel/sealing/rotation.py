"""
From one secret key to the next, beside servers at work, and whatever happens meanwhile.

    1 the new key is kept beside the old one      2 one transaction names it as the key that seals
    3 what the old one sealed is sealed anew      4 the old key is removed      5 the change is over

Until 4 both keys are there, so everything can be read at each moment; 3 goes in small transactions, so that nobody waits long.
Killed in between, the next run goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import WrongSettings
from rookery.kernel.sealing import store
from rookery.kernel.sealing.columns import SealedColumn, SealedText
from rookery.kernel.sealing.keys import SecretKey, Unreadable, id_of
from rookery.kernel.sealing.source import KeySource, fresh
from rookery.kernel.sealing.store import State

_AT_ONCE = 32
"""Texts a transaction; the largest known, kept answers, have 1 MiB."""


_ANOTHER = "Another process has changed the secret key at this moment; look, and try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """
    What a change of keys did.

    Attributes:
        is_changed: False: the settings' key is the one that seals already.
        resealed: How many texts were sealed anew; *forgotten*: that nobody can open any more, and are gone.
    """

    key_id: str
    is_changed: bool
    resealed: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """
    How it stands with what is sealed.

    Attributes:
        state: None: nothing was ever sealed.
        file_mode: Of secret.key; None: there is none.
        sealed: How many texts are sealed.
        missing: Keys that sealed something and are not here.
        unreadable: How many texts cannot be opened, as far as was tried: all of missing keys, and one of each other key and column.
        is_due: The settings' key is not the one that seals, or a change of keys was interrupted.
    """

    state: State | None
    file_mode: int | None
    sealed: int = 0
    missing: tuple[str, ...] = ()
    unreadable: int = 0
    is_due: bool = False


@dataclass(slots=True)
class _Tally:
    resealed: int = 0
    forgotten: int = 0
    damaged: list[SealedText] = field(default_factory=list[SealedText])


class Rotation:
    """Changes the secret key of everything in *columns*."""

    def __init__(self, db: Database, source: KeySource, columns: Sequence[SealedColumn], clock: Clock) -> None:
        self._db = db
        self._source = source
        self._columns = tuple(columns)
        self._clock = clock

    async def rotate(self, *, is_lost: bool = False, on_step: Callable[[str], None] | None = None) -> Rotated:
        """
        Seal everything by a new key, the settings' if they have one, and keep nothing of the old.

        Args:
            is_lost: Go on without a key that is gone: what it sealed is deleted.
            on_step: Told each step that is done, by a word.

        Raises:
            WrongSettings: Nothing was sealed yet; a key is missing, or with *is_lost* none is; another process does the same.
            Unreadable: A text is damaged; nothing was removed, and with *is_lost* it would have been deleted.
        """
        done = on_step or _nobody
        with self._source.locked():
            state = await self._db.read(store.state)
            if state is None:
                raise WrongSettings("There is no secret key yet: the first start makes it, or takes it from ROOKERY_SECRET_KEY.")
            keys, tally = self._source.read(), _Tally()
            if state.key_id not in keys and not is_lost:
                raise WrongSettings(_missing(state.key_id))
            if is_lost:
                tally.forgotten = await self._forget(keys)
            if (state.previous_id is None or state.key_id not in keys) and not self._is_chosen(state):
                state = await self._switch(state, done)
                await self._finish(state, tally, done, is_lost=is_lost)
            elif state.previous_id is not None:
                await self._finish(state, tally, done, is_lost=is_lost)
                if self._source.chosen is not None and not self._is_chosen(state):  # the settings were changed again since
                    state = await self._switch(state, done)
                    await self._finish(state, tally, done, is_lost=is_lost)
            else:
                return Rotated(key_id=state.key_id, is_changed=False, forgotten=tally.forgotten)
        return Rotated(key_id=state.key_id, is_changed=True, resealed=tally.resealed, forgotten=tally.forgotten)

    async def inspect(self) -> Inspection:
        """
        Look whether everything that is sealed can be opened, and whether secret.key is as it should be.

        Raises:
            WrongSettings: secret.key cannot be read.
        """
        state = await self._db.read(store.state)
        mode, keys = self._source.file_mode(), self._source.read()
        if state is None:
            return Inspection(state=None, file_mode=mode)
        missing, sealed, unreadable = {state.key_id} - keys.keys(), 0, 0
        for column in self._columns:
            for head, count in (await self._db.read(column.heads)).items():
                key = keys.get(id_of(head) or "")
                sealed += count
                if key is None:
                    missing.add(id_of(head) or "of no known form")
                    unreadable += count
                else:
                    unreadable += await self._db.read(lambda tx, column=column, key=key: _is_damaged(tx, column, key))
        is_due = state.previous_id is not None or (self._source.chosen is not None and not self._is_chosen(state))
        return Inspection(state=state, file_mode=mode, sealed=sealed, missing=tuple(sorted(missing)), unreadable=unreadable, is_due=is_due)

    def _is_chosen(self, state: State) -> bool:
        return self._source.chosen is not None and self._source.chosen.id == state.key_id

    async def _switch(self, state: State, done: Callable[[str], None]) -> State:
        """Do steps 1 and 2."""
        target = self._source.chosen
        if target is None:
            made = fresh()
            target = SecretKey(made)
            used = [text for text in self._source.texts() if SecretKey(text).id in {state.key_id, state.previous_id}]
            self._source.write([*used, made])  # what an earlier run made and never named is dropped
        done("kept")
        now = to_micros(self._clock())
        is_switched = await self._db.write(lambda tx: store.switch(tx, was=state.key_id, to=target.id, at=now))
        if not is_switched:
            raise WrongSettings(_ANOTHER)
        done("named")
        return State(key_id=target.id, previous_id=state.key_id)

    async def _forget(self, keys: Mapping[str, SecretKey]) -> int:
        """Forget every text that none of *keys* opens."""
        gone = 0
        for column in self._columns:
            after = ""
            while batch := await self._db.read(
                lambda tx, column=column, after=after: column.others(tx, heads=[], after=after, at_most=_AT_ONCE)
            ):
                lost = [each for each in batch if _opened(each, keys) is None]
                gone += (
                    await self._db.write(lambda tx, column=column, lost=lost: sum(column.forget(tx, each) for each in lost)) if lost else 0
                )
                after = batch[-1].place.id
        return gone

    async def _finish(self, state: State, tally: _Tally, done: Callable[[str], None], *, is_lost: bool) -> None:
        """Do steps 3 to 5."""
        keys = self._source.read()
        if state.key_id not in keys:
            raise WrongSettings(_missing(state.key_id))
        for column in self._columns:
            await self._reseal(column, keys[state.key_id], keys, tally, done, is_lost=is_lost)
        if tally.damaged:
            shown = ", ".join(f"{each.place.what} {each.place.id}" for each in tally.damaged[:3])
            raise Unreadable(f"{len(tally.damaged)} sealed texts cannot be opened ({shown}); --lost deletes them")
        texts = self._source.texts()
        # With a key of the settings, the file is of the time before it, or of another record store.
        kept = [
            text
            for text in texts
            if (SecretKey(text).id != state.previous_id if self._source.chosen else SecretKey(text).id == state.key_id)
        ]
        if len(kept) != len(texts):
            self._source.write(kept)
        done("removed")
        await self._db.write(lambda tx: store.settle(tx, state.key_id))
        done("settled")

    async def _reseal(
        self,
        column: SealedColumn,
        target: SecretKey,
        keys: Mapping[str, SecretKey],
        tally: _Tally,
        done: Callable[[str], None],
        *,
        is_lost: bool,
    ) -> None:
        after = ""
        while batch := await self._db.read(lambda tx, after=after: column.others(tx, heads=[target.head], after=after, at_most=_AT_ONCE)):
            opened = [(each, _opened(each, keys)) for each in batch]
            damaged = [each for each, text in opened if text is None]
            anew = [(each, target.seal(text, each.place)) for each, text in opened if text is not None]

            def put(tx: Tx, anew: list[tuple[SealedText, bytes]] = anew, damaged: list[SealedText] = damaged) -> tuple[int, int]:
                now = store.held(tx)
                if now is None or now.key_id != target.id:
                    raise WrongSettings(_ANOTHER)
                gone = sum(column.forget(tx, each) for each in damaged) if is_lost else 0
                return sum(column.put(tx, each, sealed) for each, sealed in anew), gone

            resealed, forgotten = await self._db.write(put)
            tally.resealed += resealed
            tally.forgotten += forgotten
            tally.damaged += [] if is_lost else damaged
            after = batch[-1].place.id
            done("resealed")


def _nobody(step: str) -> None:
    del step


def _missing(key_id: str) -> str:
    return (
        f"The secret key {key_id}, by which everything is sealed, is not here: bring it back, or name it in "
        "ROOKERY_SECRET_KEY_PREVIOUS; if it is lost, say --lost, and what it sealed is deleted."
    )


def _opened(text: SealedText, keys: Mapping[str, SecretKey]) -> bytes | None:
    key = keys.get(id_of(text.sealed) or "")
    try:
        return None if key is None else key.open(text.sealed, text.place)
    except Unreadable:
        return None


def _is_damaged(tx: Tx, column: SealedColumn, key: SecretKey) -> bool:
    """Try to open the first text that *key* sealed."""
    others = [head for head in column.heads(tx) if head != key.head]
    first = column.others(tx, heads=others, after="", at_most=1)
    return bool(first) and _opened(first[0], {key.id: key}) is None
