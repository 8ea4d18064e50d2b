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
from rookery.kernel.sealing.key_source import KeySource, generate_key_text
from rookery.kernel.sealing.keys import DecryptionFailed, SecretKey, parse_key_id
from rookery.kernel.sealing.store import SealingState

_BATCH_SIZE = 32
"""Texts a transaction; the largest known, kept answers, have 1 MiB."""


_CONCURRENT_ROTATION = "Another process has changed the secret key at this moment; look, and try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationResult:
    """
    What a change of keys did.

    Attributes:
        is_changed: False: the settings' key is the one that seals already.
        resealed_count: How many texts were sealed anew; *deleted_count*: that nobody can open any more, and are gone.
    """

    key_id: str
    is_changed: bool
    resealed_count: int = 0
    deleted_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingReport:
    """
    How it stands with what is sealed.

    Attributes:
        state: None: nothing was ever sealed.
        file_mode: Of secret.key; None: there is none.
        sealed_count: How many texts are sealed.
        missing_keys: Keys that sealed something and are not here.
        unreadable_count: How many texts cannot be opened, as far as was tried: all of missing keys, and one of each other key and column.
        is_rotation_due: The settings' key is not the one that seals, or a change of keys was interrupted.
    """

    state: SealingState | None
    file_mode: int | None
    sealed_count: int = 0
    missing_keys: tuple[str, ...] = ()
    unreadable_count: int = 0
    is_rotation_due: bool = False


@dataclass(slots=True)
class _RotationProgress:
    resealed_count: int = 0
    deleted_count: int = 0
    damaged: list[SealedText] = field(default_factory=list[SealedText])


class KeyRotation:
    """Changes the secret key of everything in *columns*."""

    def __init__(self, db: Database, source: KeySource, columns: Sequence[SealedColumn], clock: Clock) -> None:
        self._db = db
        self._source = source
        self._columns = tuple(columns)
        self._clock = clock

    async def rotate(self, *, delete_unreadable: bool = False, on_step: Callable[[str], None] | None = None) -> RotationResult:
        """
        Seal everything by a new key, the settings' if they have one, and keep nothing of the old.

        Args:
            delete_unreadable: Go on without a key that is gone: what it sealed is deleted.
            on_step: Told each step that is done, by a word.

        Raises:
            WrongSettings: Nothing was sealed yet; a key is missing, or with *delete_unreadable* none is; another process does the same.
            Unreadable: A text is damaged; nothing was removed, and with *delete_unreadable* it would have been deleted.
        """
        done = on_step or _ignore_step
        with self._source.lock_folder():
            state = await self._db.read(store.get_state)
            if state is None:
                raise WrongSettings("There is no secret key yet: the first start makes it, or takes it from ROOKERY_SECRET_KEY.")
            keys, tally = self._source.load_keys(), _RotationProgress()
            if state.key_id not in keys and not delete_unreadable:
                raise WrongSettings(_missing_key_message(state.key_id))
            if delete_unreadable:
                tally.deleted_count = await self._delete_unreadable(keys)
            if (state.previous_id is None or state.key_id not in keys) and not self._is_configured_key(state):
                state = await self._switch_key(state, done)
                await self._finish(state, tally, done, delete_unreadable=delete_unreadable)
            elif state.previous_id is not None:
                await self._finish(state, tally, done, delete_unreadable=delete_unreadable)
                if self._source.configured_key is not None and not self._is_configured_key(state):  # the settings were changed again since
                    state = await self._switch_key(state, done)
                    await self._finish(state, tally, done, delete_unreadable=delete_unreadable)
            else:
                return RotationResult(key_id=state.key_id, is_changed=False, deleted_count=tally.deleted_count)
        return RotationResult(key_id=state.key_id, is_changed=True, resealed_count=tally.resealed_count, deleted_count=tally.deleted_count)

    async def inspect_columns(self) -> SealingReport:
        """
        Look whether everything that is sealed can be opened, and whether secret.key is as it should be.

        Raises:
            WrongSettings: secret.key cannot be read.
        """
        state = await self._db.read(store.get_state)
        mode, keys = self._source.file_mode(), self._source.load_keys()
        if state is None:
            return SealingReport(state=None, file_mode=mode)
        missing, sealed, unreadable = {state.key_id} - keys.keys(), 0, 0
        for column in self._columns:
            for head, count in (await self._db.read(column.count_by_head)).items():
                key = keys.get(parse_key_id(head) or "")
                sealed += count
                if key is None:
                    missing.add(parse_key_id(head) or "of no known form")
                    unreadable += count
                else:
                    unreadable += await self._db.read(lambda tx, column=column, key=key: _is_damaged(tx, column, key))
        is_due = state.previous_id is not None or (self._source.configured_key is not None and not self._is_configured_key(state))
        return SealingReport(
            state=state,
            file_mode=mode,
            sealed_count=sealed,
            missing_keys=tuple(sorted(missing)),
            unreadable_count=unreadable,
            is_rotation_due=is_due,
        )

    def _is_configured_key(self, state: SealingState) -> bool:
        return self._source.configured_key is not None and self._source.configured_key.id == state.key_id

    async def _switch_key(self, state: SealingState, done: Callable[[str], None]) -> SealingState:
        """Do steps 1 and 2."""
        target = self._source.configured_key
        if target is None:
            made = generate_key_text()
            target = SecretKey(made)
            used = [text for text in self._source.read_key_texts() if SecretKey(text).id in {state.key_id, state.previous_id}]
            self._source.write_key_texts([*used, made])  # what an earlier run made and never named is dropped
        done("kept")
        now = to_micros(self._clock())
        is_switched = await self._db.write(lambda tx: store.switch_key(tx, old_key_id=state.key_id, new_key_id=target.id, now_us=now))
        if not is_switched:
            raise WrongSettings(_CONCURRENT_ROTATION)
        done("named")
        return SealingState(key_id=target.id, previous_id=state.key_id)

    async def _delete_unreadable(self, keys: Mapping[str, SecretKey]) -> int:
        """Forget every text that none of *keys* opens."""
        gone = 0
        for column in self._columns:
            after = ""
            while batch := await self._db.read(
                lambda tx, column=column, after=after: column.list_others(tx, heads=[], after=after, limit=_BATCH_SIZE)
            ):
                lost = [each for each in batch if _try_open(each, keys) is None]
                gone += (
                    await self._db.write(lambda tx, column=column, lost=lost: sum(column.remove(tx, each) for each in lost)) if lost else 0
                )
                after = batch[-1].context.id
        return gone

    async def _finish(self, state: SealingState, tally: _RotationProgress, done: Callable[[str], None], *, delete_unreadable: bool) -> None:
        """Do steps 3 to 5."""
        keys = self._source.load_keys()
        if state.key_id not in keys:
            raise WrongSettings(_missing_key_message(state.key_id))
        for column in self._columns:
            await self._reseal_column(column, keys[state.key_id], keys, tally, done, delete_unreadable=delete_unreadable)
        if tally.damaged:
            shown = ", ".join(f"{each.context.purpose} {each.context.id}" for each in tally.damaged[:3])
            raise DecryptionFailed(f"{len(tally.damaged)} sealed texts cannot be opened ({shown}); --lost deletes them")
        texts = self._source.read_key_texts()
        # With a key of the settings, the file is of the time before it, or of another record store.
        kept = [
            text
            for text in texts
            if (SecretKey(text).id != state.previous_id if self._source.configured_key else SecretKey(text).id == state.key_id)
        ]
        if len(kept) != len(texts):
            self._source.write_key_texts(kept)
        done("removed")
        await self._db.write(lambda tx: store.clear_previous_key(tx, state.key_id))
        done("settled")

    async def _reseal_column(
        self,
        column: SealedColumn,
        target: SecretKey,
        keys: Mapping[str, SecretKey],
        tally: _RotationProgress,
        done: Callable[[str], None],
        *,
        delete_unreadable: bool,
    ) -> None:
        after = ""
        while batch := await self._db.read(
            lambda tx, after=after: column.list_others(tx, heads=[target.head], after=after, limit=_BATCH_SIZE)
        ):
            opened = [(each, _try_open(each, keys)) for each in batch]
            damaged = [each for each, text in opened if text is None]
            anew = [(each, target.seal(text, each.context)) for each, text in opened if text is not None]

            def put(tx: Tx, anew: list[tuple[SealedText, bytes]] = anew, damaged: list[SealedText] = damaged) -> tuple[int, int]:
                now = store.lock_state(tx)
                if now is None or now.key_id != target.id:
                    raise WrongSettings(_CONCURRENT_ROTATION)
                gone = sum(column.remove(tx, each) for each in damaged) if delete_unreadable else 0
                return sum(column.replace(tx, each, sealed) for each, sealed in anew), gone

            resealed, forgotten = await self._db.write(put)
            tally.resealed_count += resealed
            tally.deleted_count += forgotten
            tally.damaged += [] if delete_unreadable else damaged
            after = batch[-1].context.id
            done("resealed")


def _ignore_step(step: str) -> None:
    del step


def _missing_key_message(key_id: str) -> str:
    return (
        f"The secret key {key_id}, by which everything is sealed, is not here: bring it back, or name it in "
        "ROOKERY_SECRET_KEY_PREVIOUS; if it is lost, say --lost, and what it sealed is deleted."
    )


def _try_open(text: SealedText, keys: Mapping[str, SecretKey]) -> bytes | None:
    key = keys.get(parse_key_id(text.sealed) or "")
    try:
        return None if key is None else key.open(text.sealed, text.context)
    except DecryptionFailed:
        return None


def _is_damaged(tx: Tx, column: SealedColumn, key: SecretKey) -> bool:
    """Try to open the first text that *key* sealed."""
    others = [head for head in column.count_by_head(tx) if head != key.head]
    first = column.list_others(tx, heads=others, after="", limit=1)
    return bool(first) and _try_open(first[0], {key.id: key}) is None
