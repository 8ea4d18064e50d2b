"""
The rotation of the secret key, while servers run, and safe against interruption.

    1 store the new key beside the old one       2 make it the current key in one transaction
    3 re-encrypt the values of the old key       4 remove the old key       5 mark the rotation as finished

Both keys exist until step 4, so every value can be decrypted at any time. Step 3 uses small transactions, so that no writer waits long.
After an interruption, the next run continues where the last one stopped.
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
from rookery.kernel.sentences import format_count

_BATCH_SIZE = 32
"""Values per transaction. The largest ones, stored responses, have up to 1 MiB."""


_CONCURRENT_ROTATION = "Another process has changed the secret key at the same time. Run `rookery doctor`, then try again if necessary."


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationResult:
    """
    The result of a key rotation.

    Attributes:
        is_changed: False if the configured key was the current one already.
        resealed_count: Number of values that were re-encrypted.
        deleted_count: Number of values that were deleted because they could not be decrypted.
    """

    key_id: str
    is_changed: bool
    resealed_count: int = 0
    deleted_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingReport:
    """
    The state of all encrypted values.

    Attributes:
        state: The current key. None: nothing was ever encrypted.
        file_mode: The mode of secret.key. None: the file does not exist.
        sealed_count: Number of encrypted values.
        missing_keys: Ids of keys that encrypted some value and are not available.
        unreadable_count: Number of values that cannot be decrypted, as far as was tried: all values of missing keys, and one value of
            each other key and column.
        is_rotation_due: The configured key is not the current one, or a rotation was interrupted.
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
    """The rotation of the secret key of all values in *columns*."""

    def __init__(self, db: Database, source: KeySource, columns: Sequence[SealedColumn], clock: Clock) -> None:
        self._db = db
        self._source = source
        self._columns = columns
        self._clock = clock

    async def rotate(self, *, delete_unreadable: bool = False, on_step: Callable[[str], None] | None = None) -> RotationResult:
        """
        Re-encrypt everything with a new key, the configured one if there is one, and remove the old key.

        Args:
            delete_unreadable: Continue without a lost key and delete the values that it encrypted.
            on_step: Called with the name of each completed step.

        Raises:
            WrongSettings: Nothing was encrypted yet, a key is missing, or another process rotates the key too.
            DecryptionFailed: A value is damaged, and *delete_unreadable* is false. Nothing was removed.
        """
        report_step = on_step or _ignore_step
        with self._source.lock_folder():
            state = await self._db.read(store.get_state)
            if state is None:
                raise WrongSettings("There is no secret key yet. The first start creates it or takes it from ROOKERY_SECRET_KEY.")
            keys, tally = self._source.load_keys(), _RotationProgress()
            if state.key_id not in keys and not delete_unreadable:
                raise WrongSettings(_missing_key_message(state.key_id))
            if delete_unreadable:
                tally.deleted_count = await self._delete_unreadable(keys)
            if (state.previous_id is None or state.key_id not in keys) and not self._is_configured_key(state):
                state = await self._switch_key(state, report_step)
                await self._finish(state, tally, report_step, delete_unreadable=delete_unreadable)
            elif state.previous_id is not None:
                await self._finish(state, tally, report_step, delete_unreadable=delete_unreadable)
                if self._source.configured_key is not None and not self._is_configured_key(state):  # the setting has changed again
                    state = await self._switch_key(state, report_step)
                    await self._finish(state, tally, report_step, delete_unreadable=delete_unreadable)
            else:
                return RotationResult(key_id=state.key_id, is_changed=False, deleted_count=tally.deleted_count)
        return RotationResult(key_id=state.key_id, is_changed=True, resealed_count=tally.resealed_count, deleted_count=tally.deleted_count)

    async def inspect_columns(self) -> SealingReport:
        """
        Check that all encrypted values can be decrypted, and return the state of secret.key.

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
                    missing.add(parse_key_id(head) or "of an unknown format")
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

    async def _switch_key(self, state: SealingState, report_step: Callable[[str], None]) -> SealingState:
        """Do steps 1 and 2."""
        target = self._source.configured_key
        if target is None:
            new_text = generate_key_text()
            target = SecretKey(new_text)
            key_texts = [text for text in self._source.read_key_texts() if SecretKey(text).id in {state.key_id, state.previous_id}]
            self._source.write_key_texts([*key_texts, new_text])  # drops a key that an interrupted run created but never made current
        report_step("kept")
        now = to_micros(self._clock())
        is_switched = await self._db.write(lambda tx: store.switch_key(tx, old_key_id=state.key_id, new_key_id=target.id, now_us=now))
        if not is_switched:
            raise WrongSettings(_CONCURRENT_ROTATION)
        report_step("named")
        return SealingState(key_id=target.id, previous_id=state.key_id)

    async def _delete_unreadable(self, keys: Mapping[str, SecretKey]) -> int:
        """Delete every value that none of *keys* decrypts; return their number."""
        deleted_count = 0
        for column in self._columns:
            after = ""
            while batch := await self._db.read(
                lambda tx, column=column, after=after: column.list_others(tx, heads=[], after=after, limit=_BATCH_SIZE)
            ):
                unreadable_texts = [sealed_text for sealed_text in batch if _try_open(sealed_text, keys) is None]
                deleted_count += (
                    await self._db.write(
                        lambda tx, column=column, unreadable_texts=unreadable_texts: sum(
                            column.remove(tx, sealed_text) for sealed_text in unreadable_texts
                        )
                    )
                    if unreadable_texts
                    else 0
                )
                after = batch[-1].context.id
        return deleted_count

    async def _finish(
        self, state: SealingState, tally: _RotationProgress, report_step: Callable[[str], None], *, delete_unreadable: bool
    ) -> None:
        """Do steps 3 to 5."""
        keys = self._source.load_keys()
        if state.key_id not in keys:
            raise WrongSettings(_missing_key_message(state.key_id))
        for column in self._columns:
            await self._reseal_column(column, keys[state.key_id], keys, tally, report_step, delete_unreadable=delete_unreadable)
        if tally.damaged:
            examples = ", ".join(f"{sealed_text.context.purpose} {sealed_text.context.id}" for sealed_text in tally.damaged[:3])
            raise DecryptionFailed(
                f"{format_count(len(tally.damaged), 'encrypted value')} cannot be decrypted ({examples}). "
                "If the key is lost, --lost deletes them."
            )
        texts = self._source.read_key_texts()
        # With a configured key, the file belongs to the time before it or to another record store.
        remaining_keys = [
            text
            for text in texts
            if (SecretKey(text).id != state.previous_id if self._source.configured_key else SecretKey(text).id == state.key_id)
        ]
        if len(remaining_keys) != len(texts):
            self._source.write_key_texts(remaining_keys)
        report_step("removed")
        await self._db.write(lambda tx: store.clear_previous_key(tx, state.key_id))
        report_step("settled")

    async def _reseal_column(
        self,
        column: SealedColumn,
        target: SecretKey,
        keys: Mapping[str, SecretKey],
        tally: _RotationProgress,
        report_step: Callable[[str], None],
        *,
        delete_unreadable: bool,
    ) -> None:
        after = ""
        while batch := await self._db.read(
            lambda tx, after=after: column.list_others(tx, heads=[target.head], after=after, limit=_BATCH_SIZE)
        ):
            pairs = [(sealed_text, _try_open(sealed_text, keys)) for sealed_text in batch]
            damaged = [sealed_text for sealed_text, text in pairs if text is None]
            replacements = [(sealed_text, target.seal(text, sealed_text.context)) for sealed_text, text in pairs if text is not None]

            def replace_batch(
                tx: Tx, replacements: list[tuple[SealedText, bytes]] = replacements, damaged: list[SealedText] = damaged
            ) -> tuple[int, int]:
                now = store.lock_state(tx)
                if now is None or now.key_id != target.id:
                    raise WrongSettings(_CONCURRENT_ROTATION)
                deleted_count = sum(column.remove(tx, sealed_text) for sealed_text in damaged) if delete_unreadable else 0
                return sum(column.replace(tx, sealed_text, sealed) for sealed_text, sealed in replacements), deleted_count

            replaced_count, deleted_count = await self._db.write(replace_batch)
            tally.resealed_count += replaced_count
            tally.deleted_count += deleted_count
            tally.damaged += [] if delete_unreadable else damaged
            after = batch[-1].context.id
            report_step("resealed")


def _ignore_step(step: str) -> None:
    del step


def _missing_key_message(key_id: str) -> str:
    return (
        f"The secret key {key_id}, with which the stored values are encrypted, is not available. Restore it, or set "
        "ROOKERY_SECRET_KEY_PREVIOUS to it. If it is lost, use --lost, which deletes the values that it encrypted."
    )


def _try_open(text: SealedText, keys: Mapping[str, SecretKey]) -> bytes | None:
    key = keys.get(parse_key_id(text.sealed) or "")
    try:
        return None if key is None else key.open(text.sealed, text.context)
    except DecryptionFailed:
        return None


def _is_damaged(tx: Tx, column: SealedColumn, key: SecretKey) -> bool:
    """Return whether the first value of *key* fails to decrypt."""
    others = [head for head in column.count_by_head(tx) if head != key.head]
    first = column.list_others(tx, heads=others, after="", limit=1)
    return bool(first) and _try_open(first[0], {key.id: key}) is None
