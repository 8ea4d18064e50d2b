"""Endpoints: validation, secrets, and disabling."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.audit_log import AuditLog
from rookery.access.store.workspaces import add_workspace
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.sealing import KeyRotation, KeySource, Sealer
from rookery.kernel.secret import Secret
from rookery.kernel.urls import find_url_error
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import MAX_ENDPOINTS, WebhookEndpoints
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.events import WebhookDisabled
from rookery.webhooks.models import Delivery, DeliveryState, DisabledReason, EndpointChange, WebhookEndpoint, WebhookSettings
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.store import deliveries as log
from rookery.webhooks.store.tables import ENDPOINTS, SEALED_COLUMNS
from tests.conftest import SECRET_KEY, FakeClock
from tests.webhooks.makers import CATALOGUE, TENANT, WORKSPACE, add_event, list_deliveries

ENDPOINT = WebhookSettings(url="https://hooks.example/rookery", events=("memory.*",))
CHOSEN_SECRET = Secret("a secret of 16 or more".replace(" ", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRig:
    """Endpoints on their own store; *names* resolves host names to addresses."""

    db: Database
    bus: EventBus
    source: KeySource
    sealer: Sealer
    endpoints: WebhookEndpoints
    recorder: Outbox
    deliveries: Deliveries
    names: dict[str, Sequence[str]]

    async def log(self, endpoint: WebhookEndpoint) -> list[Delivery]:
        """Return its deliveries, oldest first."""
        return [delivery for delivery, _ in await list_deliveries(self.db, endpoint)]


@pytest.fixture
async def rig(database: Database, tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> EndpointRig:
    """Endpoints of workspace 1, which exists."""
    names: dict[str, Sequence[str]] = {"hooks.example": ["93.184.216.34"]}

    async def resolve(host: str, port: int) -> Sequence[str]:
        del port
        return names.get(host, ())

    source = KeySource(tmp_path_factory.mktemp("keys"), configured=Secret(SECRET_KEY), previous=None)
    sealer = Sealer(database, source, SEALED_COLUMNS, clock)
    await sealer.start()
    await database.write(_make_workspace)
    bus, recorder = EventBus(), Outbox(clock, uuid7)
    egress = EgressGuard(resolve=resolve)
    endpoints = WebhookEndpoints(database, sealer, AuditLog(database, clock), egress, lambda: CATALOGUE, bus=bus, clock=clock, ids=uuid7)
    deliveries = Deliveries(database, recorder, lambda: CATALOGUE, clock=clock)
    return EndpointRig(
        db=database, bus=bus, source=source, sealer=sealer, endpoints=endpoints, recorder=recorder, deliveries=deliveries, names=names
    )


def _make_workspace(tx: Tx) -> None:
    workspace_id = add_workspace(tx, "first", parent_id=None, at=0)
    assert workspace_id == WORKSPACE


async def _rejected_fields(rig: EndpointRig, settings: WebhookSettings, secret: Secret | None = None) -> Mapping[str, Sequence[str]]:
    with pytest.raises(ValidationFailed) as error:
        await rig.endpoints.create(TENANT, settings, secret=secret)
    return cast("Mapping[str, Sequence[str]]", error.value.detail["errors"])


async def test_an_address_is_checked_at_creation_and_at_changes(rig: EndpointRig) -> None:
    """The error on `url` has the reason, and names no address of an internal network."""
    rig.names["inner.example"] = ["93.184.216.34", "10.1.2.3"]

    for url in ("https://inner.example/", "http://169.254.169.254/latest", "http://localhost:1", "https://nowhere.example"):
        errors = await _rejected_fields(rig, replace(ENDPOINT, url=url))
        assert errors.keys() == {"url"}
        assert "10.1.2.3" not in errors["url"][0]
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    with pytest.raises(ValidationFailed):
        await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(url="https://inner.example/"))

    assert (await rig.endpoints.get(TENANT, created.endpoint.id)).url == ENDPOINT.url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hooks.example/",
        "hooks.example",
        "https://",
        "https://user:password@hooks.example/",
        "https://@hooks.example/",
        "https://hooks.example/#part",
        "https://hooks.example/a b",
        "https://hööks.example/",
        "https://hooks.example:99999/",
        "https://hooks.example:0/",
        "https://[::1/",
        "https://hooks.example/" + "a" * 2_048,
        "https://hooks.example/\x00",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://127%2e0.0.1/",
        "http://[fe80::1%eth0]/",
        "http://[v1.x]/",
        "http://a..b/",
        "http://" + "a." * 130 + "example/",
        "",
    ],
)
async def test_an_invalid_address_is_rejected(rig: EndpointRig, url: str) -> None:
    """The error is on `url`."""
    assert (await _rejected_fields(rig, replace(ENDPOINT, url=url))).keys() == {"url"}


@given(st.text(max_size=80) | st.from_regex(r"https?://[ -~]{0,40}", fullmatch=True))
def test_every_text_is_a_valid_address_or_has_an_error(url: str) -> None:
    """A valid address is ASCII without credentials, and an HTTP client reads the same host from it."""
    url_error = find_url_error(url)

    if url_error is None:
        assert httpx2.URL(url).raw_host.decode() == str(urlsplit(url).hostname)
        assert url.isascii()
        assert url.lower().startswith(("http://", "https://"))
        assert "@" not in urlsplit(url).netloc


async def test_all_errors_are_reported_at_once(rig: EndpointRig) -> None:
    """`errors` has the errors of each field."""
    invalid = WebhookSettings(
        url="ftp://x",
        events=("memory.store", "tool.caled", "plan.*"),
        description="x" * 501,
        concurrency=17,
    )

    errors = await _rejected_fields(rig, invalid, secret=Secret("short"))

    assert errors.keys() == {"url", "events", "secret", "description", "concurrency"}
    assert len(errors["events"]) == 2
    assert "short" not in str(errors)


async def test_an_event_named_twice_is_kept_once(rig: EndpointRig) -> None:
    """Events keep their order, each once; an empty list is rejected."""
    endpoint = replace(ENDPOINT, events=("tool.called", "memory.*", "tool.called"))

    assert (await rig.endpoints.create(TENANT, endpoint)).endpoint.events == ("tool.called", "memory.*")
    assert (await _rejected_fields(rig, replace(ENDPOINT, events=()))).keys() == {"events"}


async def test_the_endpoints_of_a_workspace_are_limited(rig: EndpointRig) -> None:
    """Every list is bounded."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    for _ in range(MAX_ENDPOINTS - 1):
        await rig.endpoints.create(TENANT, ENDPOINT)

    with pytest.raises(Conflict):
        await rig.endpoints.create(TENANT, ENDPOINT)
    await rig.endpoints.delete(TENANT, created.endpoint.id)

    assert await rig.endpoints.create(TENANT, ENDPOINT)


async def test_a_secret_is_chosen_or_generated_and_stored_encrypted(rig: EndpointRig, clock: FakeClock) -> None:
    """A generated secret is `whsec_` and base64; it is shown once."""
    created, chosen = (
        await rig.endpoints.create(TENANT, ENDPOINT),
        await rig.endpoints.create(TENANT, ENDPOINT, secret=CHOSEN_SECRET),
    )

    assert chosen.secret == CHOSEN_SECRET
    assert created.secret.reveal().startswith("whsec_")
    assert len(base64.b64decode(created.secret.reveal().removeprefix("whsec_"), validate=True)) == 32
    for new_endpoint in (created, chosen):
        stored = await rig.endpoints.get(TENANT, new_endpoint.endpoint.id)
        assert new_endpoint.secret.reveal().encode() not in cast("bytes", stored.sealed_secret)
        secrets = rig.endpoints.get_signing_secrets(stored, clock.at)
        assert secrets is not None
        assert (secrets.current, secrets.previous) == (new_endpoint.secret, None)


async def test_a_rotated_secret_stays_valid_during_its_grace_period(rig: EndpointRig, clock: FakeClock) -> None:
    """The default is 24 h; a second rotation in that time is 409, unless it has no grace period."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)

    changed = await rig.endpoints.rotate_secret(TENANT, created.endpoint.id)
    in_grace = rig.endpoints.get_signing_secrets(changed.endpoint, clock.at + timedelta(hours=24, microseconds=-1))
    after_grace = rig.endpoints.get_signing_secrets(changed.endpoint, clock.at + timedelta(hours=24))
    assert in_grace is not None
    assert after_grace is not None
    assert (in_grace.current, in_grace.previous) == (changed.secret, created.secret)
    assert (after_grace.current, after_grace.previous) == (changed.secret, None)
    with pytest.raises(Conflict):
        await rig.endpoints.rotate_secret(TENANT, created.endpoint.id)
    for hours, secret in ((721, None), (-1, None), (24, "short")):
        with pytest.raises(ValidationFailed):
            await rig.endpoints.rotate_secret(TENANT, created.endpoint.id, grace_hours=hours, secret=secret)

    forced = await rig.endpoints.rotate_secret(TENANT, created.endpoint.id, grace_hours=0, secret=CHOSEN_SECRET.reveal())
    secrets = rig.endpoints.get_signing_secrets(forced.endpoint, clock.at)
    assert secrets is not None
    assert (secrets.current, secrets.previous) == (CHOSEN_SECRET, None)


async def test_a_secret_past_its_grace_period_is_deleted(rig: EndpointRig, clock: FakeClock) -> None:
    """An expired secret is not kept."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    await rig.endpoints.rotate_secret(TENANT, created.endpoint.id, grace_hours=1)
    assert await rig.endpoints.delete_expired_secrets() == 0

    clock.advance(hours=1)

    assert await rig.endpoints.delete_expired_secrets() == 1
    stored = await rig.endpoints.get(TENANT, created.endpoint.id)
    assert (stored.previous_secret, stored.previous_until) == (None, None)
    assert await rig.endpoints.rotate_secret(TENANT, created.endpoint.id)


async def test_a_new_secret_key_reencrypts_both_secrets_and_a_lost_one_deletes_them(rig: EndpointRig, clock: FakeClock) -> None:
    """A key rotation covers every encrypted column; secrets of a lost key must be set again."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    changed = await rig.endpoints.rotate_secret(TENANT, created.endpoint.id)
    other = Secret("another secret key of the tests: 9876543210")

    await KeyRotation(
        rig.db, KeySource(rig.source.path.parent, configured=other, previous=Secret(SECRET_KEY)), SEALED_COLUMNS, clock
    ).rotate()
    stored = await rig.endpoints.get(TENANT, created.endpoint.id)
    assert stored.sealed_secret != changed.endpoint.sealed_secret
    assert stored.previous_secret != changed.endpoint.previous_secret

    third = KeySource(rig.source.path.parent, configured=Secret("a third secret key of the tests: 5555566666"), previous=None)
    await KeyRotation(rig.db, third, SEALED_COLUMNS, clock).rotate(delete_unreadable=True)
    stored = await rig.endpoints.get(TENANT, created.endpoint.id)
    assert (stored.sealed_secret, stored.previous_secret) == (None, None)
    assert rig.endpoints.get_signing_secrets(stored, clock.at) is None


async def test_pending_deliveries_are_held_while_disabled_and_resent_in_order(rig: EndpointRig, clock: FakeClock) -> None:
    """Held deliveries become pending again by resend-failed, the oldest first."""
    created, announced = await rig.endpoints.create(TENANT, ENDPOINT), list[WebhookDisabled]()
    rig.bus.subscribe(WebhookDisabled, announced.append)
    await add_event(rig.db, rig.recorder)
    clock.advance(seconds=1)

    disabled = (await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(enabled=False))).endpoint
    await add_event(rig.db, rig.recorder)
    assert (disabled.disabled_at, disabled.disabled_reason, [event.reason for event in announced]) == (
        clock.at,
        DisabledReason.BY_HAND,
        ["by_hand"],
    )
    assert [delivery.state for delivery in await rig.log(disabled)] == [DeliveryState.HELD] * 2
    with pytest.raises(Conflict):
        await rig.deliveries.resend_failed(TENANT, disabled.id)
    clock.advance(seconds=1)

    enabled = await rig.endpoints.update(TENANT, disabled.id, EndpointChange.of(enabled=True))
    assert (enabled.held_count, enabled.endpoint.enabled_at, enabled.endpoint.disabled_at, enabled.endpoint.disabled_reason) == (
        2,
        clock.at,
        None,
        None,
    )
    assert await rig.deliveries.resend_failed(TENANT, disabled.id, since=clock.at) == 0
    assert await rig.deliveries.resend_failed(TENANT, disabled.id) == 2
    assert [(delivery.state, delivery.next_at) for delivery in await rig.log(disabled)] == [(DeliveryState.PENDING, clock.at)] * 2
    assert await rig.deliveries.resend_failed(TENANT, disabled.id) == 0


async def test_a_resend_stays_within_the_backlog_limit(rig: EndpointRig, clock: FakeClock) -> None:
    """The backlog limit applies to resends too."""
    created = await rig.endpoints.create(TENANT, replace(ENDPOINT, enabled=False))
    for _ in range(5):
        await add_event(rig.db, rig.recorder)
    await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(enabled=True))
    rig.recorder.max_open = 3

    assert await rig.deliveries.resend_failed(TENANT, created.endpoint.id) == 3
    with pytest.raises(DeliveriesFull):
        await rig.deliveries.resend_failed(TENANT, created.endpoint.id)

    with pytest.raises(DeliveriesFull):
        await rig.deliveries.send_test(TENANT, created.endpoint.id)
    assert [delivery.state for delivery in await rig.log(created.endpoint)] == [DeliveryState.PENDING] * 3 + [DeliveryState.HELD] * 2


async def test_a_finished_delivery_is_resent_as_a_new_delivery_of_the_same_event(rig: EndpointRig, clock: FakeClock) -> None:
    """A pending delivery cannot be resent."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    await add_event(rig.db, rig.recorder)
    first = (await rig.log(created.endpoint))[0]
    with pytest.raises(Conflict):
        await rig.deliveries.resend(TENANT, created.endpoint.id, first.id)
    await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(enabled=False))
    await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(enabled=True))

    assert (await rig.deliveries.resend(TENANT, created.endpoint.id, first.id)).id == first.id
    await rig.db.write(lambda tx: log.cancel(tx, WORKSPACE, created.endpoint.id, error="as if it had ended", at=clock.at))
    resent = await rig.deliveries.resend(TENANT, created.endpoint.id, first.id)

    assert (resent.resend_of, resent.event_id, resent.state) == (first.id, first.event_id, DeliveryState.PENDING)
    assert resent.id != first.id
    with pytest.raises(NotFound):
        await rig.deliveries.resend(TENANT, created.endpoint.id, uuid7())


async def test_the_dispatcher_disables_an_endpoint_once(rig: EndpointRig, clock: FakeClock) -> None:
    """Disabling sends one event; a second reason or a deleted endpoint changes nothing."""
    created, reasons = await rig.endpoints.create(TENANT, ENDPOINT), list[str]()
    rig.bus.add_recorder(WebhookDisabled, lambda _, event: reasons.append(event.reason))

    for reason in (DisabledReason.GONE, DisabledReason.FAILURES):
        await rig.db.write(lambda tx, reason=reason: rig.endpoints.disable(tx, created.endpoint, reason, clock.at))
    stored = await rig.endpoints.get(TENANT, created.endpoint.id)
    await rig.endpoints.delete(TENANT, created.endpoint.id)
    await rig.db.write(lambda tx: rig.endpoints.disable(tx, created.endpoint, DisabledReason.GONE, clock.at))

    assert (stored.enabled, stored.disabled_reason, reasons) == (False, DisabledReason.GONE, ["gone"])


async def test_pending_deliveries_of_a_deleted_endpoint_are_cancelled(rig: EndpointRig) -> None:
    """Svix/svix-webhooks#1511: nothing loops on a deleted endpoint."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    await add_event(rig.db, rig.recorder)

    await rig.endpoints.delete(TENANT, created.endpoint.id)
    await add_event(rig.db, rig.recorder)

    assert [(delivery.state, delivery.next_at) for delivery in await rig.log(created.endpoint)] == [(DeliveryState.CANCELLED, None)]
    with pytest.raises(NotFound):
        await rig.endpoints.get(TENANT, created.endpoint.id)


async def test_an_update_without_changes_changes_nothing(rig: EndpointRig, clock: FakeClock) -> None:
    """Such an update has no audit entry; PATCH keeps unnamed fields."""
    created = await rig.endpoints.create(TENANT, ENDPOINT)
    clock.advance(seconds=1)

    unchanged = await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(url=ENDPOINT.url, enabled=True))
    changed = await rig.endpoints.update(TENANT, created.endpoint.id, EndpointChange.of(strict_order=True, events=("*",)))

    assert unchanged.endpoint == created.endpoint
    assert changed.endpoint == replace(created.endpoint, strict_order=True, events=("*",), updated_at=clock.at)
    assert await rig.db.read(lambda tx: ENDPOINTS.find(tx, WORKSPACE, id=created.endpoint.id)) == changed.endpoint
