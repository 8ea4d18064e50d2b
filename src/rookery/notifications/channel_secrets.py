"""The secrets that sign webhook messages, one per tenant, created with the first message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Tenant
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.ids import IdFactory
from rookery.kernel.sealing import SealContext, Sealer
from rookery.kernel.secret import Secret
from rookery.kernel.signing import generate_signing_secret
from rookery.notifications.store import secrets as store
from rookery.notifications.store.secrets import SigningSecretRow
from rookery.notifications.store.tables import PREVIOUS_SECRET_PURPOSE, SECRET_PURPOSE

_CACHE_S = 1.0
"""Seconds for which decrypted secrets are reused. A rotation in another process takes effect after them."""

_MAX_CACHED_TENANTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSigningSecret:
    """A new secret, which is returned only once, and the end of the grace period of the previous one."""

    id: str
    secret: Secret
    previous_until: datetime | None
    created_at: datetime


class ChannelSecrets:
    """The signing secrets of all tenants. It implements the port `ChannelKeys`."""

    def __init__(self, db: Database, sealer: Sealer, audit: AuditLog, *, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._sealer = sealer
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._cache: dict[int, tuple[float, tuple[Secret, ...]]] = {}

    async def get_signing_secrets(self, workspace_id: int) -> Sequence[Secret]:
        """
        Return the secrets that sign the messages of a tenant, the newest first; two during a grace period.

        Raises:
            EngineUnavailable: They cannot be decrypted, or were lost with their key.
        """
        entry = self._cache.get(workspace_id)
        if entry is not None and time.monotonic() - entry[0] < _CACHE_S:
            return entry[1]
        row = await self._db.lookup(lambda tx: store.find(tx, workspace_id))
        if row is None:
            row = await self._db.write(lambda tx: self._get_or_create(tx, workspace_id))
        if row.secret is None:
            raise EngineUnavailable("sealing", "the secret of notifications was lost with its key; rotate it")
        secrets = [self._open(row, SECRET_PURPOSE, row.secret)]
        if row.previous_secret is not None and row.previous_until is not None and self._clock() < row.previous_until:
            secrets.append(self._open(row, PREVIOUS_SECRET_PURPOSE, row.previous_secret))
        if len(self._cache) >= _MAX_CACHED_TENANTS:
            self._cache.clear()
        self._cache[workspace_id] = (time.monotonic(), tuple(secrets))
        return secrets

    async def rotate(self, tenant: Tenant, *, grace_hours: int) -> NewSigningSecret:
        """
        Replace the secret of a tenant. During the grace period, messages are signed with both.

        A rotation without a grace period also ends an earlier one.
        """
        now, secret = self._clock(), generate_signing_secret()

        def work(tx: Tx) -> NewSigningSecret:
            require_workspace(tx, tenant.public_workspace_id)
            old = store.find(tx, tenant.workspace_id, lock=True)
            row = old or self._new_row(tx, tenant.workspace_id, secret)
            if old is None:
                store.add(tx, row)
            else:
                current = self._open(old, SECRET_PURPOSE, old.secret) if grace_hours and old.secret is not None else None
                row = replace(
                    old,
                    secret=self._seal(tx, old, SECRET_PURPOSE, secret),
                    previous_secret=None if current is None else self._seal(tx, old, PREVIOUS_SECRET_PURPOSE, current),
                    previous_until=None if current is None else now + timedelta(hours=grace_hours),
                    created_at=now,
                )
                store.replace_secret(tx, row)
            subject = AuditSubject(kind="notification_secret", id=row.id, name="webhook", environment=tenant.environment)
            after = {"grace_period_hours": grace_hours}
            self._audit.record(tx, tenant.by, tenant.public_workspace_id, "notification_secret.rotated", subject, before={}, after=after)
            tx.after_commit(lambda: self._forget(tenant.workspace_id))
            return NewSigningSecret(id=row.id, secret=secret, previous_until=row.previous_until, created_at=row.created_at)

        return await self._db.write(work)

    async def delete_expired(self) -> int:
        """Delete previous secrets whose grace period has ended; return the number. For a timer; they sign nothing anyway."""
        return await self._db.write(lambda tx: store.delete_expired(tx, self._clock()))

    def _get_or_create(self, tx: Tx, workspace_id: int) -> SigningSecretRow:
        row = store.find(tx, workspace_id, lock=True)
        if row is None:
            row = self._new_row(tx, workspace_id, generate_signing_secret())
            store.add(tx, row)
            row = store.find(tx, workspace_id, lock=True) or row
        return row

    def _new_row(self, tx: Tx, workspace_id: int, secret: Secret) -> SigningSecretRow:
        empty = SigningSecretRow(
            id=self._ids(),
            workspace_id=workspace_id,
            secret=None,
            previous_secret=None,
            previous_until=None,
            created_at=self._clock(),
        )
        return replace(empty, secret=self._seal(tx, empty, SECRET_PURPOSE, secret))

    def _forget(self, workspace_id: int) -> None:
        self._cache.pop(workspace_id, None)

    def _seal(self, tx: Tx, row: SigningSecretRow, purpose: str, secret: Secret) -> bytes:
        return self._sealer.seal(tx, secret.reveal().encode(), SealContext(purpose, row.workspace_id, row.id))

    def _open(self, row: SigningSecretRow, purpose: str, sealed: bytes) -> Secret:
        return Secret(self._sealer.open(sealed, SealContext(purpose, row.workspace_id, row.id)).decode())
