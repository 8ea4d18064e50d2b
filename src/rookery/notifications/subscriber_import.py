"""The import of subscribers: lines in batches, one transaction for each. Good lines are stored, and bad ones are reported."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Tenant
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.unset import UNSET, value_or
from rookery.notifications.events import SubscriberEvent
from rookery.notifications.models import ChannelDraft, ImportLine, ImportReport, NewSubscriber, SubscriberChange, SubscriberView
from rookery.notifications.store import subscribers as store
from rookery.notifications.subscriber_builder import SubscriberBuilder
from rookery.notifications.subscribers import find_refused

BATCH_SIZE = 500
"""Lines in one transaction."""

MAX_REPORTED_ERRORS = 100
"""Maximum bad lines that a report names. It counts all."""


@dataclass(slots=True)
class _BatchResult:
    """The numbers of created, updated and unchanged subscribers, and the errors of lines by their number."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    errors: dict[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict[int, Mapping[str, tuple[str, ...]]])


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
        changes = [(line, line.change) for line in batch if line.change is not None]
        channels = [(line.number, index, draft) for line, change in changes for index, draft in enumerate(_get_channels(change))]
        refused = await find_refused(self._egress, [draft for _, _, draft in channels], resolves_names=False)
        errors: dict[int, Mapping[str, tuple[str, ...]]] = {line.number: line.errors for line in batch if line.errors is not None}
        for position, error in refused.items():
            number, index, _ = channels[position]
            errors[number] = {**errors.get(number, {}), f"channels.{index}": (error,)}
        valid = [(line, change) for line, change in changes if line.number not in errors]
        counts = await self._db.write(lambda tx: self._upsert(tx, tenant, valid))
        report.created_count += counts.created
        report.updated_count += counts.updated
        report.unchanged_count += counts.unchanged
        errors.update(counts.errors)
        report.failed_count += len(errors)
        free = MAX_REPORTED_ERRORS - len(report.errors)
        report.errors.extend(sorted(errors.items())[: max(0, free)])

    def _upsert(self, tx: Tx, tenant: Tenant, lines: Sequence[tuple[ImportLine, SubscriberChange]]) -> _BatchResult:
        """Store the changes of *lines*. One that does not fit its subscriber is an error of its line."""
        require_workspace(tx, tenant.public_workspace_id)
        now = self._clock()
        names = sorted({change.get("external_id") for _, change in lines})
        existing = store.find_by_external_ids(tx, tenant.workspace_id, names)
        current, created, changed = dict(existing), dict[str, SubscriberView](), dict[str, SubscriberView]()
        result = _BatchResult()
        for line, change in lines:
            name: str = change.get("external_id")
            old = current.get(name)
            try:
                if old is None:
                    new = self._builder.build(tenant, NewSubscriber(**change.get_set_fields()), now)
                else:
                    new = self._builder.change(old, change, now, columns=line.columns)
            except ValidationFailed as error:
                result.errors[line.number] = error.field_errors
                continue
            if new is old:
                result.unchanged += 1
                continue
            result.updated += old is not None
            current[name] = new
            (changed if name in existing else created)[name] = new
        result.created = len(created)
        store.insert_subscribers(tx, list(created.values()))
        store.update_subscribers(tx, [(existing[name], new) for name, new in changed.items()])
        for event_name, views in (("subscriber.created", created), ("subscriber.updated", changed)):
            for view in views.values():
                self._publish(tx, event_name, view)
        return result

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


def _get_channels(change: SubscriberChange) -> Sequence[ChannelDraft]:
    drafts: tuple[ChannelDraft, ...] | UNSET = change.get("channels")
    return value_or(drafts, ())
