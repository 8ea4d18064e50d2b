"""The import of subscribers: lines in batches, one transaction for each. Good lines are stored, and bad ones are reported (D-70)."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Tenant
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.notifications.events import SubscriberEvent
from rookery.notifications.models import ImportLine, ImportReport, SubscriberDraft, SubscriberView
from rookery.notifications.store import subscribers as store
from rookery.notifications.subscribers import SubscriberBuilder, find_refused

BATCH_SIZE = 500
"""Lines in one transaction."""

MAX_REPORTED_ERRORS = 100
"""Maximum bad lines that a report names. It counts all."""


class SubscriberImport:
    """
    The import of subscribers into a tenant.

    A line creates the subscriber with its external id, or changes the fields of the existing one that the line has. So an import may be
    repeated.
    """

    def __init__(self, db: Database, audit: AuditLog, egress: EgressGuard, *, bus: EventBus, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._audit = audit
        self._egress = egress
        self._bus = bus
        self._clock = clock
        self._builder = SubscriberBuilder(ids=ids)

    async def run(
        self,
        tenant: Tenant,
        batches: AsyncIterable[Sequence[ImportLine]],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> ImportReport:
        """
        Import all lines and return the report.

        Args:
            tenant: The owner of the subscribers.
            batches: The parsed lines. Invalid ones are only counted and reported.
            on_progress: Called with the number of lines done after each batch.
        """
        report = ImportReport(errors=[])
        async for batch in batches:
            await self._store_batch(tenant, batch, report)
            report.line_count += len(batch)
            if on_progress is not None:
                on_progress(report.line_count)
        if report.created_count or report.updated_count:
            await self._db.write(lambda tx: self._record_audit(tx, tenant, report))
        return report

    async def _store_batch(self, tenant: Tenant, batch: Sequence[ImportLine], report: ImportReport) -> None:
        drafts = [(line.number, line.draft) for line in batch if line.draft is not None]
        channels = [(number, index, draft) for number, line in drafts for index, draft in enumerate(line.channels or ())]
        refused = await find_refused(self._egress, [draft for _, _, draft in channels], resolves_names=False)
        errors = {line.number: dict(line.errors) for line in batch if line.errors is not None}
        for position, error in refused.items():
            number, index, _ = channels[position]
            errors.setdefault(number, {})[f"channels.{index}"] = (error,)
        valid = [draft for number, draft in drafts if number not in errors]
        created, updated, unchanged = await self._db.write(lambda tx: self._upsert(tx, tenant, valid))
        report.created_count += created
        report.updated_count += updated
        report.unchanged_count += unchanged
        report.failed_count += len(errors)
        free = MAX_REPORTED_ERRORS - len(report.errors)
        report.errors.extend(sorted(errors.items())[: max(0, free)])

    def _upsert(self, tx: Tx, tenant: Tenant, drafts: Sequence[SubscriberDraft]) -> tuple[int, int, int]:
        """Store drafts and return the numbers of created, updated and unchanged subscribers."""
        require_workspace(tx, tenant.public_workspace_id)
        now = self._clock()
        names = [draft.external_id or "" for draft in drafts]
        existing = store.find_by_external_ids(tx, tenant.workspace_id, sorted(set(names)))
        current, created, changed = dict(existing), dict[str, SubscriberView](), dict[str, SubscriberView]()
        unchanged_count = updated_count = 0
        for name, draft in zip(names, drafts, strict=True):
            old = current.get(name)
            if old is None:
                current[name] = created[name] = self._builder.build(tenant, name, draft, now)
                continue
            new = self._builder.change(old, draft, now)
            if new is old:
                unchanged_count += 1
                continue
            updated_count += 1
            current[name] = new
            (created if name in created else changed)[name] = new
        store.insert_subscribers(tx, list(created.values()))
        store.update_subscribers(tx, [(existing[name], new) for name, new in changed.items()])
        for event_name, views in (("subscriber.created", created), ("subscriber.updated", changed)):
            for view in views.values():
                self._publish(tx, event_name, view)
        return len(created), updated_count, unchanged_count

    def _publish(self, tx: Tx, name: str, view: SubscriberView) -> None:
        subscriber = view.subscriber
        event = SubscriberEvent(
            name=name,
            workspace_id=subscriber.workspace_id,
            subscriber_id=subscriber.id,
            external_id=subscriber.external_id,
            at=subscriber.updated_at,
        )
        self._bus.publish_on_commit(tx, event)

    def _record_audit(self, tx: Tx, tenant: Tenant, report: ImportReport) -> None:
        subject = AuditSubject(kind="subscriber", id="", name="import", environment=tenant.environment)
        counts = {"created": report.created_count, "updated": report.updated_count, "failed": report.failed_count}
        self._audit.record(tx, tenant.by, tenant.public_workspace_id, "subscriber.imported", subject, before={}, after=counts)
