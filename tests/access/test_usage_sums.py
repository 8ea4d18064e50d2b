"""Sums of calls of all keys, and the list of calls of one key: both match the recorded calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain, combinations

import pytest

from rookery.access.key_fields import KeyChanges, NewApiKey
from rookery.access.models import CallFilter, Environment, Key, KeyCall, KeyKind, UsageField, UsageFilter, UsageSum
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access
from tests.conftest import OPERATOR

FIELDS: tuple[UsageField, ...] = ("day", "key", "method", "route", "status")
SUBSETS = [frozenset(subset) for subset in chain.from_iterable(combinations(FIELDS, size) for size in range(len(FIELDS) + 1))]
DAY = date(2026, 11, 20)

Name = tuple[str | None, str | None, str | None, str | None, int | None]
"""The key of a sum: day, key, method, route, status."""


@dataclass
class RecordedUsage:
    """The recorded calls: the kind, environment and name of each key, and every call."""

    workspace: int
    other: int
    keys: dict[str, Key]
    calls: list[KeyCall]

    def sums(self, workspace: int, kind: KeyKind, usage_filter: UsageFilter, by: frozenset[UsageField]) -> list[UsageSum]:
        """Return the sums, computed in the simplest way."""
        groups: dict[Name, list[KeyCall]] = {} if by else {(None, None, None, None, None): []}
        for call in self.calls:
            key, day = self.keys[call.key_id], call.at.date()
            if (call.workspace_id, key.kind) != (workspace, kind) or usage_filter.key_id not in {None, key.id}:
                continue
            if usage_filter.environment not in {None, key.environment} or not (usage_filter.since or date.min) <= day <= (
                usage_filter.until or date.max
            ):
                continue
            name: Name = (
                day.isoformat() if "day" in by else None,
                key.id if "key" in by else None,
                call.method if "method" in by else None,
                call.route if "route" in by else None,
                call.status if "status" in by else None,
            )
            groups.setdefault(name, []).append(call)
        return [self._sum(name, calls) for name, calls in sorted(groups.items(), key=lambda group: [str(part) for part in group[0]])]

    def _sum(self, name: Name, calls: list[KeyCall]) -> UsageSum:
        day, key, method, route, status = name
        return UsageSum(
            key_id=key,
            key_name=self.keys[key].name if key else None,
            day=day,
            method=method,
            route=route,
            status=status,
            calls=len(calls),
            errors=sum(call.status >= 400 and not call.is_upstream_error for call in calls),
            upstream_errors=sum(call.is_upstream_error for call in calls),
            total_ms=sum(call.duration_ms for call in calls),
        )


@pytest.fixture
async def recorded(access: Access) -> RecordedUsage:
    """Keys of two workspaces, of both kinds and environments, with calls over three days; one was renamed, two were deleted."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new_test_key = NewApiKey(name="trial", scopes=("*",), environment="test")
    new_keys = [
        await access.create_api_key(workspace),
        await access.create_api_key(workspace, new_test_key),
        await access.create_api_key(workspace, replace(new_test_key, name="gone", environment="live")),
        await access.create_agent_key(workspace),
        await access.create_agent_key(workspace),
        await access.create_api_key(other),
    ]
    keys = {new_key.key.id: new_key.key for new_key in new_keys}
    rng, calls = random.Random(7), list[KeyCall]()
    for number in range(240):
        key = rng.choice(list(keys.values()))
        at = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(seconds=rng.randrange(3 * 86_400), microseconds=number)
        status = rng.choice([200, 201, 399, 400, 404, 500])
        call = KeyCall(
            key_id=key.id, workspace_id=key.workspace_id, at=at, method=rng.choice(["GET", "POST"]), route=rng.choice(["/a", "/b"]),
            status=status, duration_ms=rng.randrange(64) / 4, address="192.0.2.1",
            request_id=f"req_{number}", is_upstream_error=status >= 400 and rng.random() < 0.3,
        )  # fmt: skip
        calls.append(call)
        micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        response = (call.method, call.route, call.status, call.duration_ms, int(call.is_upstream_error))
        access.usage.log_request((call.key_id, call.workspace_id, micros, *response, call.address, call.request_id))
        if number % 50 == 49 or number == 239:
            await access.usage.flush()
    keys[new_keys[0].key.id] = await access.api_keys.update(workspace, new_keys[0].key.id, KeyChanges(name="renamed"), by=OPERATOR)
    await access.api_keys.delete(workspace, new_keys[2].key.id, by=OPERATOR)
    await access.agent_keys.delete(workspace, new_keys[4].key.id, by=OPERATOR)
    return RecordedUsage(workspace=workspace, other=other, keys=keys, calls=calls)


async def test_sums_match_the_calls(access: Access, recorded: RecordedUsage) -> None:
    """For every choice of fields, in order; deleted keys too, under the names they had; not those of another workspace."""
    for by in SUBSETS:
        for workspace in (recorded.workspace, recorded.other):
            for kind in ("api", "agent"):
                expected = recorded.sums(workspace, kind, UsageFilter(), by)
                assert await access.usage.list_sums(workspace, kind, UsageFilter(), by, limit=999) == expected, (by, kind)


@pytest.mark.parametrize("environment", [None, "live", "test"])
async def test_sums_can_be_filtered(access: Access, recorded: RecordedUsage, environment: Environment | None) -> None:
    """By environment, key and days, both ends included."""
    by = frozenset[UsageField]({"key", "day"})
    for key_id in (None, *recorded.keys, "unknown"):
        for since, until in (
            (None, None),
            (DAY + timedelta(days=1), None),
            (None, DAY),
            (DAY + timedelta(days=1),) * 2,
            (DAY + timedelta(days=9), None),
        ):
            usage_filter = UsageFilter(key_id=key_id, environment=environment, since=since, until=until)
            assert await access.usage.list_sums(recorded.workspace, "api", usage_filter, by, limit=999) == recorded.sums(
                recorded.workspace, "api", usage_filter, by
            )


async def test_sums_are_kept_when_the_calls_are_deleted(access: Access, recorded: RecordedUsage) -> None:
    """Rows for 30 days, sums for ever. Only deleting the workspace deletes them."""
    by = frozenset[UsageField]({"key"})
    access.clock.at += timedelta(days=40)
    assert await access.usage.delete_old_calls() == len(recorded.calls)
    assert await access.usage.list_sums(recorded.workspace, "api", UsageFilter(), by, limit=999) == recorded.sums(
        recorded.workspace, "api", UsageFilter(), by
    )
    await access.workspaces.delete(recorded.workspace, by=OPERATOR)

    assert await access.usage.list_sums(recorded.workspace, "api", UsageFilter(), by, limit=999) == []
    assert await access.usage.list_sums(recorded.other, "api", UsageFilter(), by, limit=999) == recorded.sums(
        recorded.other, "api", UsageFilter(), by
    )


async def test_a_limit_returns_the_first_sums(access: Access, recorded: RecordedUsage) -> None:
    """No response grows without bound."""
    by = frozenset(FIELDS)
    all_sums = await access.usage.list_sums(recorded.workspace, "api", UsageFilter(), by, limit=999)

    assert await access.usage.list_sums(recorded.workspace, "api", UsageFilter(), by, limit=3) == all_sums[:3]


async def test_calls_are_listed_and_filtered(access: Access, recorded: RecordedUsage) -> None:
    """One row per call, newest first, in pages; *until* is exclusive."""
    key_id, noon = next(iter(recorded.keys)), datetime(DAY.year, DAY.month, DAY.day + 1, 12, tzinfo=UTC)
    calls = sorted((call for call in recorded.calls if call.key_id == key_id), key=lambda call: call.at, reverse=True)
    cases: list[tuple[CallFilter, Callable[[KeyCall], bool]]] = [
        (CallFilter(), lambda _: True),
        (CallFilter(since=calls[3].at), lambda call: call.at >= calls[3].at),
        (CallFilter(until=calls[3].at), lambda call: call.at < calls[3].at),
        (CallFilter(status=404), lambda call: call.status == 404),
        (CallFilter(route="/a", since=noon), lambda call: call.route == "/a" and call.at >= noon),
        (CallFilter(route="/nowhere"), lambda _: False),
    ]
    for call_filter, matches in cases:
        expected = [call for call in calls if matches(call)]
        page = await access.usage.list_call_page(recorded.workspace, key_id, call_filter, page=PageSlice(999))
        assert page[:2] == (expected, len(expected))
        page = await access.usage.list_call_page(recorded.workspace, key_id, call_filter, page=PageSlice(2, 1))
        assert page[:2] == (
            expected[1:3],
            len(expected),
        )
    assert (await access.usage.list_call_page(recorded.other, key_id, CallFilter(), page=PageSlice(9))).items == []
