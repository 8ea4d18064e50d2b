"""Endpoints: what may be one, whose its secrets are, and how it ends (D-80, D-82)."""

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
from rookery.kernel.events import EventBus, WebhookDisabled
from rookery.kernel.ids import uuid7
from rookery.kernel.sealing import KeyRotation, KeySource, Sealer
from rookery.kernel.secret import Secret
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import MAX_ENDPOINTS, WebhookEndpoints
from rookery.webhooks.errors import DeliveriesFull
from rookery.webhooks.models import Delivery, DeliveryState, DisabledReason, EndpointChange, NewEndpoint, WebhookEndpoint
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.store import deliveries as log
from rookery.webhooks.store import endpoints as store
from rookery.webhooks.store.tables import SEALED_COLUMNS
from rookery.webhooks.validation import find_url_error, validate_endpoint
from tests.conftest import SECRET_KEY, FakeClock
from tests.webhooks.makers import TENANT, WORKSPACE, add_event, list_deliveries

HOOK = NewEndpoint(url="https://hooks.example/rookery", events=("memory.*",))
GIVEN = Secret("a secret of 16 or more".replace(" ", "-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRig:
    """Endpoints on a store of their own, in a world whose names mean what *names* says."""

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
        return [each for each, _ in await list_deliveries(self.db, endpoint)]


@pytest.fixture
async def rig(database: Database, tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> EndpointRig:
    """Endpoints of workspace 1, which is there."""
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
    endpoints = WebhookEndpoints(database, sealer, AuditLog(database, clock), egress, bus=bus, clock=clock, ids=uuid7)
    deliveries = Deliveries(database, recorder, clock=clock)
    return EndpointRig(
        db=database, bus=bus, source=source, sealer=sealer, endpoints=endpoints, recorder=recorder, deliveries=deliveries, names=names
    )


def _make_workspace(tx: Tx) -> None:
    from_store = add_workspace(tx, "first", parent_id=None, at=0)
    assert from_store == WORKSPACE


async def _refused(rig: EndpointRig, new: NewEndpoint) -> Mapping[str, Sequence[str]]:
    with pytest.raises(ValidationFailed) as refusal:
        await rig.endpoints.create(TENANT, new)
    return cast("Mapping[str, Sequence[str]]", refusal.value.detail["errors"])


async def test_an_address_is_judged_when_it_is_given_and_when_it_is_changed(rig: EndpointRig) -> None:
    """D-82: one guard, at create as at delivery; 422 on `url` with the reason, which names no address of an inner network."""
    rig.names["inner.example"] = ["93.184.216.34", "10.1.2.3"]

    for url in ("https://inner.example/", "http://169.254.169.254/latest", "http://localhost:1", "https://nowhere.example"):
        errors = await _refused(rig, replace(HOOK, url=url))
        assert errors.keys() == {"url"}
        assert "10.1.2.3" not in errors["url"][0]
    made = await rig.endpoints.create(TENANT, HOOK)
    with pytest.raises(ValidationFailed):
        await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(url="https://inner.example/"))

    assert (await rig.endpoints.get(TENANT, made.endpoint.id)).url == HOOK.url


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
async def test_what_is_no_address_of_a_receiver_is_refused_in_words(rig: EndpointRig, url: str) -> None:
    """D-80, D-10: 422 on `url`, whatever was sent."""
    assert (await _refused(rig, replace(HOOK, url=url))).keys() == {"url"}


@given(st.text(max_size=80) | st.from_regex(r"https?://[ -~]{0,40}", fullmatch=True))
def test_every_text_is_an_address_or_is_told_why_not(url: str) -> None:
    """D-16, D-82: nothing a caller sends makes a 500; what passes is ASCII without a login, its host what an HTTP client takes it for."""
    why = find_url_error(url)

    if why is None:
        assert httpx2.URL(url).raw_host.decode() == str(urlsplit(url).hostname)
        assert url.isascii()
        assert url.lower().startswith(("http://", "https://"))
        assert "@" not in url.split("//", 1)[1].split("/", 1)[0]


async def test_all_that_is_wrong_is_told_at_once(rig: EndpointRig) -> None:
    """D-10: `errors` tells each field what is wrong with it."""
    wrong = NewEndpoint(
        url="ftp://x",
        events=("memory.store", "tool.caled", "plan.*"),
        secret=Secret("short"),
        description="x" * 501,
        concurrency=17,
    )

    errors = await _refused(rig, wrong)

    assert errors.keys() == {"url", "events", "secret", "description", "concurrency"}
    assert len(errors["events"]) == 2
    assert "short" not in str(errors)


async def test_an_event_named_twice_is_kept_once(rig: EndpointRig) -> None:
    """D-80: events in the order given, each once; none is 422."""
    asked = replace(HOOK, events=("tool.called", "memory.*", "tool.called"))

    assert validate_endpoint(asked).events == ("tool.called", "memory.*")
    assert (await _refused(rig, replace(HOOK, events=()))).keys() == {"events"}


async def test_a_workspace_has_so_many_and_no_more(rig: EndpointRig) -> None:
    """D-17, spec 5: what grows without end is bounded."""
    made = await rig.endpoints.create(TENANT, HOOK)
    for _ in range(MAX_ENDPOINTS - 1):
        await rig.endpoints.create(TENANT, HOOK)

    with pytest.raises(Conflict):
        await rig.endpoints.create(TENANT, HOOK)
    await rig.endpoints.delete(TENANT, made.endpoint.id)

    assert await rig.endpoints.create(TENANT, HOOK)


async def test_a_secret_is_given_or_made_and_kept_sealed(rig: EndpointRig, clock: FakeClock) -> None:
    """D-80: 16..128 printable, else `whsec_` and base64, shown once, sealed."""
    made, given_one = await rig.endpoints.create(TENANT, HOOK), await rig.endpoints.create(TENANT, replace(HOOK, secret=GIVEN))

    assert given_one.secret == GIVEN
    assert made.secret.reveal().startswith("whsec_")
    assert len(base64.b64decode(made.secret.reveal().removeprefix("whsec_"), validate=True)) == 32
    for each in (made, given_one):
        kept = await rig.endpoints.get(TENANT, each.endpoint.id)
        assert each.secret.reveal().encode() not in cast("bytes", kept.sealed_secret)
        found = rig.endpoints.get_signing_secrets(kept, clock.at)
        assert found is not None
        assert (found.current, found.previous) == (each.secret, None)


async def test_a_changed_secret_leaves_the_old_one_its_grace(rig: EndpointRig, clock: FakeClock) -> None:
    """D-80, D-81: grace 24 h by default; a second change in grace is 409, but one without grace, which ends the first."""
    made = await rig.endpoints.create(TENANT, HOOK)

    changed = await rig.endpoints.rotate_secret(TENANT, made.endpoint.id)
    in_grace = rig.endpoints.get_signing_secrets(changed.endpoint, clock.at + timedelta(hours=24, microseconds=-1))
    after = rig.endpoints.get_signing_secrets(changed.endpoint, clock.at + timedelta(hours=24))
    assert in_grace is not None
    assert after is not None
    assert (in_grace.current, in_grace.previous) == (changed.secret, made.secret)
    assert (after.current, after.previous) == (changed.secret, None)
    with pytest.raises(Conflict):
        await rig.endpoints.rotate_secret(TENANT, made.endpoint.id)
    for hours, secret in ((721, None), (-1, None), (24, "short")):
        with pytest.raises(ValidationFailed):
            await rig.endpoints.rotate_secret(TENANT, made.endpoint.id, grace_hours=hours, secret=secret)

    last = await rig.endpoints.rotate_secret(TENANT, made.endpoint.id, grace_hours=0, secret=GIVEN.reveal())
    now = rig.endpoints.get_signing_secrets(last.endpoint, clock.at)
    assert now is not None
    assert (now.current, now.previous) == (GIVEN, None)


async def test_a_secret_past_its_grace_is_forgotten(rig: EndpointRig, clock: FakeClock) -> None:
    """D-80, D-07: an unused secret is not kept."""
    made = await rig.endpoints.create(TENANT, HOOK)
    await rig.endpoints.rotate_secret(TENANT, made.endpoint.id, grace_hours=1)
    assert await rig.endpoints.delete_expired_secrets() == 0

    clock.advance(hours=1)

    assert await rig.endpoints.delete_expired_secrets() == 1
    kept = await rig.endpoints.get(TENANT, made.endpoint.id)
    assert (kept.previous_secret, kept.previous_until) == (None, None)
    assert await rig.endpoints.rotate_secret(TENANT, made.endpoint.id)


async def test_a_new_secret_key_seals_both_secrets_anew_and_a_lost_one_leaves_an_endpoint_without(
    rig: EndpointRig, clock: FakeClock
) -> None:
    """D-07: a change of keys finds every sealed column; what a lost key sealed must be made again."""
    made = await rig.endpoints.create(TENANT, HOOK)
    changed = await rig.endpoints.rotate_secret(TENANT, made.endpoint.id)
    other = Secret("another secret key of the tests: 9876543210")

    await KeyRotation(
        rig.db, KeySource(rig.source.path.parent, configured=other, previous=Secret(SECRET_KEY)), SEALED_COLUMNS, clock
    ).rotate()
    kept = await rig.endpoints.get(TENANT, made.endpoint.id)
    assert kept.sealed_secret != changed.endpoint.sealed_secret
    assert kept.previous_secret != changed.endpoint.previous_secret

    third = KeySource(rig.source.path.parent, configured=Secret("a third secret key of the tests: 5555566666"), previous=None)
    await KeyRotation(rig.db, third, SEALED_COLUMNS, clock).rotate(delete_unreadable=True)
    kept = await rig.endpoints.get(TENANT, made.endpoint.id)
    assert (kept.sealed_secret, kept.previous_secret) == (None, None)
    assert rig.endpoints.get_signing_secrets(kept, clock.at) is None


async def test_what_waits_is_held_while_an_endpoint_is_disabled_and_sent_in_order_when_it_is_asked_for(
    rig: EndpointRig, clock: FakeClock
) -> None:
    """D-81: re-enable offers all since; what did not arrive waits for its turn again, the oldest first."""
    made, disabled = await rig.endpoints.create(TENANT, HOOK), list[WebhookDisabled]()
    rig.bus.subscribe(WebhookDisabled, disabled.append)
    await add_event(rig.db, rig.recorder)
    clock.advance(seconds=1)

    off = (await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(enabled=False))).endpoint
    await add_event(rig.db, rig.recorder)
    assert (off.disabled_at, off.disabled_reason, [each.reason for each in disabled]) == (clock.at, DisabledReason.BY_HAND, ["by_hand"])
    assert [each.state for each in await rig.log(off)] == [DeliveryState.HELD] * 2
    with pytest.raises(Conflict):
        await rig.deliveries.resend_failed(TENANT, off.id)
    clock.advance(seconds=1)

    on = await rig.endpoints.update(TENANT, off.id, EndpointChange(enabled=True))
    assert (on.held_count, on.endpoint.enabled_at, on.endpoint.disabled_at, on.endpoint.disabled_reason) == (2, clock.at, None, None)
    assert await rig.deliveries.resend_failed(TENANT, off.id, since=clock.at) == 0
    assert await rig.deliveries.resend_failed(TENANT, off.id) == 2
    assert [(each.state, each.next_at) for each in await rig.log(off)] == [(DeliveryState.PENDING, clock.at)] * 2
    assert await rig.deliveries.resend_failed(TENANT, off.id) == 0


async def test_more_is_not_resent_than_may_wait(rig: EndpointRig, clock: FakeClock) -> None:
    """D-17: the backlog is bounded, also for what is sent again."""
    made = await rig.endpoints.create(TENANT, replace(HOOK, enabled=False))
    for _ in range(5):
        await add_event(rig.db, rig.recorder)
    await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(enabled=True))
    rig.recorder.max_open = 3

    assert await rig.deliveries.resend_failed(TENANT, made.endpoint.id) == 3
    with pytest.raises(DeliveriesFull):
        await rig.deliveries.resend_failed(TENANT, made.endpoint.id)

    with pytest.raises(DeliveriesFull):
        await rig.deliveries.send_test(TENANT, made.endpoint.id)
    assert [each.state for each in await rig.log(made.endpoint)] == [DeliveryState.PENDING] * 3 + [DeliveryState.HELD] * 2


async def test_what_arrived_is_resent_as_another_delivery_of_the_same_event(rig: EndpointRig, clock: FakeClock) -> None:
    """D-80: resend one; what is on its way is 409."""
    made = await rig.endpoints.create(TENANT, HOOK)
    await add_event(rig.db, rig.recorder)
    first = (await rig.log(made.endpoint))[0]
    with pytest.raises(Conflict):
        await rig.deliveries.resend(TENANT, made.endpoint.id, first.id)
    await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(enabled=False))
    await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(enabled=True))

    assert (await rig.deliveries.resend(TENANT, made.endpoint.id, first.id)).id == first.id
    await rig.db.write(lambda tx: log.cancel(tx, WORKSPACE, made.endpoint.id, error="as if it had ended", at=clock.at))
    again = await rig.deliveries.resend(TENANT, made.endpoint.id, first.id)

    assert (again.resend_of, again.event_id, again.state) == (first.id, first.event_id, DeliveryState.PENDING)
    assert again.id != first.id
    with pytest.raises(NotFound):
        await rig.deliveries.resend(TENANT, made.endpoint.id, uuid7())


async def test_the_dispatcher_disables_once_and_a_new_success_is_waited_for_from_then(rig: EndpointRig, clock: FakeClock) -> None:
    """D-81: disabled on 410 or after failures, with an event; twice is once, and a deleted endpoint is left alone."""
    made, told = await rig.endpoints.create(TENANT, HOOK), list[str]()
    rig.bus.add_recorder(WebhookDisabled, lambda _, event: told.append(event.reason))

    for reason in (DisabledReason.GONE, DisabledReason.FAILURES):
        await rig.db.write(lambda tx, reason=reason: rig.endpoints.disable(tx, made.endpoint, reason, clock.at))
    kept = await rig.endpoints.get(TENANT, made.endpoint.id)
    await rig.endpoints.delete(TENANT, made.endpoint.id)
    await rig.db.write(lambda tx: rig.endpoints.disable(tx, made.endpoint, DisabledReason.GONE, clock.at))

    assert (kept.enabled, kept.disabled_reason, told) == (False, DisabledReason.GONE, ["gone"])


async def test_what_was_on_its_way_to_a_deleted_endpoint_is_cancelled(rig: EndpointRig) -> None:
    """Svix/svix-webhooks#1511: nothing loops on an endpoint that is no more."""
    made = await rig.endpoints.create(TENANT, HOOK)
    await add_event(rig.db, rig.recorder)

    await rig.endpoints.delete(TENANT, made.endpoint.id)
    await add_event(rig.db, rig.recorder)

    assert [(each.state, each.next_at) for each in await rig.log(made.endpoint)] == [(DeliveryState.CANCELLED, None)]
    with pytest.raises(NotFound):
        await rig.endpoints.get(TENANT, made.endpoint.id)


async def test_a_change_of_nothing_changes_nothing(rig: EndpointRig, clock: FakeClock) -> None:
    """D-29: the audit log tells of changes; and PATCH keeps what it does not name."""
    made = await rig.endpoints.create(TENANT, HOOK)
    clock.advance(seconds=1)

    same = await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(url=HOOK.url, enabled=True))
    other = await rig.endpoints.update(TENANT, made.endpoint.id, EndpointChange(strict_order=True, events=("*",)))

    assert same.endpoint == made.endpoint
    assert other.endpoint == replace(made.endpoint, strict_order=True, events=("*",), updated_at=clock.at)
    assert await rig.db.read(lambda tx: store.find(tx, WORKSPACE, made.endpoint.id)) == other.endpoint
