"""Webhook endpoints: creation, changes, secrets, disabling and enabling."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import SYSTEM_ACTOR
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import AddressRefused, EgressGuard
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus, EventCatalogue
from rookery.kernel.ids import IdFactory
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.projections import copy_fields
from rookery.kernel.sealing import SealContext, Sealer
from rookery.kernel.secret import Secret
from rookery.kernel.signing import find_secret_error, generate_signing_secret
from rookery.kernel.urls import find_url_error, hide_secrets
from rookery.webhooks.events import WebhookDisabled
from rookery.webhooks.models import (
    MAX_GRACE_HOURS,
    DeliveryState,
    DisabledReason,
    EndpointChange,
    EndpointUpdate,
    EndpointWithSecret,
    SigningSecrets,
    WebhookEndpoint,
    WebhookSettings,
    WebhookTenant,
)
from rookery.webhooks.outbox import HELD_MESSAGE
from rookery.webhooks.store import deliveries
from rookery.webhooks.store import endpoints as store
from rookery.webhooks.store.tables import DELIVERIES, ENDPOINTS, PREVIOUS_SECRET_PURPOSE, SECRET_PURPOSE

MAX_ENDPOINTS = 100
"""Maximum endpoints per workspace."""

_DELETED_MESSAGE = "the webhook was deleted"
_VALID_SECRET = re.compile(r"[!-~]{16,128}")
_INVALID_SECRET_MESSAGE = "must be 16 to 128 printable ASCII characters without spaces"  # noqa: S105 - a message
_TICK = timedelta(microseconds=1)

_AuditFields = Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class WebhookEndpoints:
    """The endpoints of all tenants. Methods with a *tenant* work on that tenant only."""

    db: Database
    sealer: Sealer
    audit: AuditLog
    egress: EgressGuard
    catalogue: Callable[[], EventCatalogue]
    _: KW_ONLY
    bus: EventBus
    clock: Clock
    ids: IdFactory

    async def list_page(
        self, tenant: WebhookTenant, *, page: PageSlice, text: str = "", searches_urls: bool = True
    ) -> ListPage[WebhookEndpoint]:
        """
        Return a page of endpoints, newest first, and the total.

        Args:
            text: A part of the description or the URL, in upper or lower case.
            searches_urls: Look for *text* in URLs too. False for callers from whom their tokens are hidden.
        """
        return await self.db.read(lambda tx: store.list_page(tx, tenant.workspace_id, page=page, text=text, searches_urls=searches_urls))

    async def get(self, tenant: WebhookTenant, endpoint_id: str) -> WebhookEndpoint:
        """Return an endpoint, or raise NotFound."""
        return await self.db.read(lambda tx: require_endpoint(tx, tenant, endpoint_id))

    async def create(self, tenant: WebhookTenant, settings: WebhookSettings, *, secret: Secret | None = None) -> EndpointWithSecret:
        """
        Create an endpoint. It receives events from then on.

        Args:
            secret: Signs its deliveries. None: a new one.

        Raises:
            ValidationFailed: A field is invalid, the URL's address is not allowed, or an event is unknown.
            Conflict: The workspace has the maximum number of endpoints.
            ScopeMissing, PermissionDenied: The key may not read the resources of these events.
        """
        values = _validate_settings(copy_fields(WebhookSettings, settings), self.catalogue(), secret)
        tenant.require_scopes(self.catalogue().list_scopes(settings.events))
        await self._require_reachable(settings.url)
        secret, now = secret or generate_signing_secret(), self.clock()
        endpoint = WebhookEndpoint(
            **values,
            id=self.ids(),
            workspace_id=tenant.workspace_id,
            public_workspace_id=tenant.public_workspace_id,
            enabled_at=now,
            disabled_at=None if settings.enabled else now,
            disabled_reason=None if settings.enabled else DisabledReason.BY_HAND,
            created_at=now,
            updated_at=now,
        )

        def work(tx: Tx) -> EndpointWithSecret:
            require_workspace(tx, tenant.public_workspace_id)
            if ENDPOINTS.count(tx, tenant.workspace_id) >= MAX_ENDPOINTS:
                raise Conflict(f"This workspace has {MAX_ENDPOINTS} webhooks, the maximum. Delete one first.")
            sealed_endpoint = replace(endpoint, sealed_secret=self._seal(tx, endpoint, SECRET_PURPOSE, secret))
            ENDPOINTS.insert(tx, sealed_endpoint)
            self._record_audit(tx, tenant, "created", sealed_endpoint, (None, _audit_fields(sealed_endpoint)))
            return EndpointWithSecret(endpoint=sealed_endpoint, secret=secret)

        return await self.db.write(work)

    async def update(
        self, tenant: WebhookTenant, endpoint_id: str, change: EndpointChange, *, expected: ExpectedETags = None
    ) -> EndpointUpdate:
        """
        Change an endpoint. Enabling it resets its failures and returns the number of held deliveries, which can be resent.

        Raises:
            NotFound: The endpoint does not exist.
            ValidationFailed: As for `create`.
            PreconditionFailed: The endpoint has another version than *expected*.
            ScopeMissing, PermissionDenied: The change concerns events, content or URL, and the key may not read the events' resources.
        """
        catalogue = self.catalogue()
        values = _validate_settings(change.get_set_fields(), catalogue)
        if "url" in values:
            await self._require_reachable(values["url"])
        now = self.clock()

        def work(tx: Tx) -> EndpointUpdate:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_endpoint(tx, tenant, endpoint_id, lock=True)
            require_match("webhook", old.version, expected)
            new = _change(old, values, now)
            if new == old:
                return EndpointUpdate(endpoint=old)
            if (new.url, new.events, new.include_content) != (old.url, old.events, old.include_content):
                tenant.require_scopes(catalogue.list_scopes([*old.events, *new.events]))
            if new.url != old.url:
                # The log may hold events of earlier subscriptions, which could be resent to the new URL.
                unreadable = [event_type.name for event_type in catalogue.types if not tenant.has_scopes([event_type.scope])]
                logged = deliveries.list_types(tx, tenant.workspace_id, endpoint_id, candidates=unreadable)
                tenant.require_scopes(catalogue.list_scopes(logged))
            new = replace(new, updated_at=_later(old, now))
            ENDPOINTS.update(tx, new)
            was_enabled = new.enabled and not old.enabled
            held_count = (
                DELIVERIES.count(tx, tenant.workspace_id, endpoint_id=endpoint_id, state=DeliveryState.HELD.value) if was_enabled else None
            )
            if old.enabled and not new.enabled:
                self._hold_deliveries(tx, new, DisabledReason.BY_HAND, now)
            self._record_audit(tx, tenant, "changed", new, (_audit_fields(old), _audit_fields(new)))
            return EndpointUpdate(endpoint=new, held_count=held_count)

        return await self.db.write(work)

    async def delete(self, tenant: WebhookTenant, endpoint_id: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete an endpoint and cancel its open deliveries. Its log stays until its events are deleted.

        Raises:
            NotFound: The endpoint does not exist.
            PreconditionFailed: The endpoint has another version than *expected*.
        """
        now = self.clock()

        def work(tx: Tx) -> None:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_endpoint(tx, tenant, endpoint_id, lock=True)
            require_match("webhook", old.version, expected)
            # Delete the endpoint first: this waits for transactions that add deliveries to it, so that `cancel` sees those too.
            ENDPOINTS.delete(tx, tenant.workspace_id, id=endpoint_id)
            deliveries.cancel(tx, tenant.workspace_id, endpoint_id, error=_DELETED_MESSAGE, at=now)
            self._record_audit(tx, tenant, "deleted", old, (_audit_fields(old), None))

        await self.db.write(work)

    async def rotate_secret(
        self, tenant: WebhookTenant, endpoint_id: str, *, grace_hours: int = 24, secret: str | None = None, expected: ExpectedETags = None
    ) -> EndpointWithSecret:
        """
        Replace the signing secret. During the grace period, deliveries are signed with both secrets.

        A rotation without a grace period also ends the grace period of an earlier one, so that a leaked secret becomes
        useless at once.

        Args:
            tenant: The owner of the endpoint.
            endpoint_id: The endpoint.
            grace_hours: 0 to 720.
            secret: The new secret; None: generate one.
            expected: The ETags of If-Match; None: any version.

        Raises:
            NotFound: The endpoint does not exist.
            ValidationFailed: The grace period or the secret is invalid.
            Conflict: The grace period of an earlier rotation has not ended.
            PreconditionFailed: The endpoint has another version than *expected*.
        """
        _validate_grace_hours(grace_hours)
        new_secret = generate_signing_secret() if secret is None else _validate_secret(Secret(secret))
        now = self.clock()

        def work(tx: Tx) -> EndpointWithSecret:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_endpoint(tx, tenant, endpoint_id, lock=True)
            require_match("webhook", old.version, expected)
            if grace_hours and old.grace_until(now) is not None:
                raise Conflict(
                    "The previous secret is still in its grace period. Wait until that ends, or rotate with grace_period_hours 0."
                )
            current = self._unseal(old, SECRET_PURPOSE, old.sealed_secret) if grace_hours else None
            until = None if current is None else now + timedelta(hours=grace_hours)
            new = replace(
                old,
                sealed_secret=self._seal(tx, old, SECRET_PURPOSE, new_secret),
                previous_secret=None if current is None else self._seal(tx, old, PREVIOUS_SECRET_PURPOSE, current),
                previous_until=until,
                updated_at=_later(old, now),
            )
            ENDPOINTS.update(tx, new)
            self._record_audit(tx, tenant, "secret_rotated", new, ({}, {"grace_period_hours": grace_hours}))
            return EndpointWithSecret(endpoint=new, secret=new_secret)

        return await self.db.write(work)

    def get_signing_secrets(self, endpoint: WebhookEndpoint, now: datetime) -> SigningSecrets | None:
        """
        Return the secrets that sign deliveries; None if the secret was lost and must be replaced.

        Raises:
            Unreadable: The key that seals the secrets is currently unavailable.
        """
        current = self._unseal(endpoint, SECRET_PURPOSE, endpoint.sealed_secret)
        if current is None:
            return None
        in_grace = endpoint.grace_until(now) is not None
        return SigningSecrets(
            current=current, previous=self._unseal(endpoint, PREVIOUS_SECRET_PURPOSE, endpoint.previous_secret) if in_grace else None
        )

    def disable(self, tx: Tx, endpoint: WebhookEndpoint, reason: DisabledReason, at: datetime) -> None:
        """
        Disable an endpoint in the dispatcher's transaction, as its last step. Hold its deliveries and publish `webhook.disabled`.

        Does nothing if the endpoint was deleted or is already disabled.
        """
        old = ENDPOINTS.find(tx, endpoint.workspace_id, id=endpoint.id, lock=True)
        if old is None or not old.enabled:
            return
        new = replace(old, enabled=False, disabled_at=at, disabled_reason=reason, updated_at=_later(old, at))
        ENDPOINTS.update(tx, new)
        self._hold_deliveries(tx, new, reason, at)
        tenant = WebhookTenant(workspace_id=new.workspace_id, public_workspace_id=new.public_workspace_id, by=SYSTEM_ACTOR)
        self._record_audit(tx, tenant, "disabled", new, (_audit_fields(old), _audit_fields(new)))

    async def list_auto_disabled(self, *, limit: int) -> Sequence[WebhookEndpoint]:
        """Return endpoints of all tenants that were disabled automatically, newest first; only for the operator."""
        return await self.db.read(lambda tx: store.list_auto_disabled(tx, limit=limit))

    async def delete_expired_secrets(self) -> int:
        """Delete previous secrets whose grace period has ended; return the number. For a timer; they sign nothing anyway."""
        return await self.db.write(lambda tx: store.delete_expired_secrets(tx, self.clock()))

    def _hold_deliveries(self, tx: Tx, endpoint: WebhookEndpoint, reason: DisabledReason, at: datetime) -> None:
        deliveries.hold(tx, endpoint.workspace_id, endpoint.id, error=HELD_MESSAGE)
        event = WebhookDisabled(workspace_id=endpoint.workspace_id, endpoint_id=endpoint.id, reason=reason.value, at=at)
        self.bus.publish_on_commit(tx, event)

    async def _require_reachable(self, url: str) -> None:
        try:
            await self.egress.require_allowed_url(url)
        except AddressRefused as error:
            raise ValidationFailed({"url": [error.message]}) from None

    def _seal(self, tx: Tx, endpoint: WebhookEndpoint, purpose: str, secret: Secret) -> bytes:
        return self.sealer.seal(tx, secret.reveal().encode(), SealContext(purpose, endpoint.workspace_id, endpoint.id))

    def _unseal(self, endpoint: WebhookEndpoint, purpose: str, sealed: bytes | None) -> Secret | None:
        if sealed is None:
            return None
        return Secret(self.sealer.open(sealed, SealContext(purpose, endpoint.workspace_id, endpoint.id)).decode())

    def _record_audit(
        self,
        tx: Tx,
        tenant: WebhookTenant,
        action: str,
        endpoint: WebhookEndpoint,
        changes: tuple[_AuditFields | None, _AuditFields | None],
    ) -> None:
        before, after = changes
        name = urlsplit(endpoint.url).hostname or endpoint.id
        subject = AuditSubject(kind="webhook", id=endpoint.id, name=name, environment=tenant.environment)
        self.audit.record(tx, tenant.by, tenant.public_workspace_id, f"webhook.{action}", subject, before=before, after=after)


def require_endpoint(tx: Tx, tenant: WebhookTenant, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint:
    """Return an endpoint of the tenant, or raise NotFound."""
    endpoint = ENDPOINTS.find(tx, tenant.workspace_id, id=endpoint_id, lock=lock)
    if endpoint is None:
        raise NotFound("webhook", endpoint_id)
    return endpoint


def _later(old: WebhookEndpoint, now: datetime) -> datetime:
    """Return *now*, or just after the last change if that is later, so that each change makes a new version."""
    return max(now, old.updated_at + _TICK)


def _change(old: WebhookEndpoint, values: Mapping[str, Any], now: datetime) -> WebhookEndpoint:
    new = replace(old, **values)
    if new.enabled == old.enabled:
        return new
    if new.enabled:
        return replace(new, enabled_at=now, disabled_at=None, disabled_reason=None, failures=0)
    return replace(new, disabled_at=now, disabled_reason=DisabledReason.BY_HAND)


def _audit_fields(endpoint: WebhookEndpoint) -> dict[str, object]:
    """Return the audited fields, with the URL but not the tokens in it."""
    settings = copy_fields(WebhookSettings, endpoint)
    reason = None if endpoint.disabled_reason is None else endpoint.disabled_reason.value
    return {**settings, "url": hide_secrets(endpoint.url), "events": list(endpoint.events), "disabled_reason": reason}


def _validate_settings(settings: Mapping[str, Any], catalogue: EventCatalogue, secret: Secret | None = None) -> dict[str, Any]:
    """
    Return the new values of settings, with each event once.

    Raises:
        ValidationFailed: With the errors of all fields.
    """
    errors: dict[str, list[str]] = {}
    try:
        EndpointChange.of(**settings)
    except ValidationFailed as error:
        errors = {name: list(texts) for name, texts in error.field_errors.items()}
    events = tuple(dict.fromkeys(settings.get("events", ())))
    others: dict[str, list[str]] = {
        "url": [error] if "url" in settings and (error := find_url_error(settings["url"])) is not None else [],
        "events": [error for pattern in events if (error := catalogue.find_pattern_error(pattern)) is not None],
        "description": ["must not contain NUL"] if "\x00" in settings.get("description", "") else [],
        "secret": _find_secret_errors(secret),
    }
    errors = {name: texts for name, texts in others.items() if texts} | errors
    if errors:
        raise ValidationFailed(errors)
    return dict(settings) | ({"events": events} if events else {})


def _validate_secret(secret: Secret) -> Secret:
    """Return *secret*, or raise ValidationFailed."""
    errors = _find_secret_errors(secret)
    if errors:
        raise ValidationFailed({"secret": errors})
    return secret


def _find_secret_errors(secret: Secret | None) -> list[str]:
    if secret is None:
        return []
    error = find_secret_error(secret.reveal()) if _VALID_SECRET.fullmatch(secret.reveal()) else _INVALID_SECRET_MESSAGE
    return [] if error is None else [error]


def _validate_grace_hours(hours: int) -> None:
    """Raise ValidationFailed unless *hours* is a valid grace period."""
    if not 0 <= hours <= MAX_GRACE_HOURS:
        raise ValidationFailed({"grace_period_hours": [f"must be 0 to {MAX_GRACE_HOURS}, not {hours}"]})
