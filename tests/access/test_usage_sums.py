"""Calls added up for all keys at once, and listed for one: always what the calls themselves say (spec 2.3; D-17, D-25, D-29)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain, combinations

import pytest

from rookery.access.key_fields import KeyChanges, NewApiKey
from rookery.access.models import CallFilter, Environment, Key, KeyCall, KeyKind, UsageField, UsageFilter, UsageSum
from tests.access.makers import Access
from tests.conftest import OPERATOR

FIELDS: tuple[UsageField, ...] = ("day", "key", "method", "route", "status")
SUBSETS = [frozenset(each) for each in chain.from_iterable(combinations(FIELDS, size) for size in range(len(FIELDS) + 1))]
DAY = date(2026, 11, 20)

Name = tuple[str | None, str | None, str | None, str | None, int | None]
"""What calls were added up by: day, key, method, route, status."""


@dataclass
class Made:
    """The recorded calls: the kind, environment and name of each key, and every call."""

    workspace: int
    other: int
    keys: dict[str, Key]
    calls: list[KeyCall]

    def sums(self, workspace: int, kind: KeyKind, which: UsageFilter, by: frozenset[UsageField]) -> list[UsageSum]:
        """Add up in the simplest way."""
        found: dict[Name, list[KeyCall]] = {} if by else {(None, None, None, None, None): []}
        for call in self.calls:
            key, day = self.keys[call.key_id], call.at.date()
            if (call.workspace_id, key.kind) != (workspace, kind) or which.key_id not in {None, key.id}:
                continue
            if which.environment not in {None, key.environment} or not (which.since or date.min) <= day <= (which.until or date.max):
                continue
            name: Name = (
                day.isoformat() if "day" in by else None,
                key.id if "key" in by else None,
                call.method if "method" in by else None,
                call.route if "route" in by else None,
                call.status if "status" in by else None,
            )
            found.setdefault(name, []).append(call)
        return [self._sum(name, calls) for name, calls in sorted(found.items(), key=lambda each: [str(part) for part in each[0]])]

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
            errors=sum(call.status >= 400 for call in calls),
            total_ms=sum(call.duration_ms for call in calls),
        )


@pytest.fixture
async def made(access: Access) -> Made:
    """Keys of two workspaces, of both kinds and environments, which called over three days; one was renamed, two are gone."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    trial = NewApiKey(name="trial", scopes=("*",), environment="test")
    minted = [
        await access.create_api_key(workspace),
        await access.create_api_key(workspace, trial),
        await access.create_api_key(workspace, replace(trial, name="gone", environment="live")),
        await access.create_agent_key(workspace),
        await access.create_agent_key(workspace),
        await access.create_api_key(other),
    ]
    keys = {each.key.id: each.key for each in minted}
    chosen, calls = random.Random(7), list[KeyCall]()
    for number in range(240):
        key = chosen.choice(list(keys.values()))
        at = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(seconds=chosen.randrange(3 * 86_400), microseconds=number)
        call = KeyCall(
            key_id=key.id, workspace_id=key.workspace_id, at=at, method=chosen.choice(["GET", "POST"]), route=chosen.choice(["/a", "/b"]),
            status=chosen.choice([200, 201, 399, 400, 404, 500]), duration_ms=chosen.randrange(64) / 4, address="192.0.2.1",
            request_id=f"req_{number}",
        )  # fmt: skip
        calls.append(call)
        micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        access.usage.log_request(
            (call.key_id, call.workspace_id, micros, call.method, call.route, call.status, call.duration_ms, call.address, call.request_id)
        )
        if number % 50 == 49 or number == 239:
            await access.usage.flush()
    keys[minted[0].key.id] = await access.api_keys.update(workspace, minted[0].key.id, KeyChanges(name="renamed"), by=OPERATOR)
    await access.api_keys.delete(workspace, minted[2].key.id, by=OPERATOR)
    await access.agent_keys.delete(workspace, minted[4].key.id, by=OPERATOR)
    return Made(workspace=workspace, other=other, keys=keys, calls=calls)


async def test_sums_are_what_the_calls_add_up_to(access: Access, made: Made) -> None:
    """D-29: by every choice of fields, in their order; deleted keys too, under the names they had; no other workspace's."""
    for by in SUBSETS:
        for workspace in (made.workspace, made.other):
            for kind in ("api", "agent"):
                expected = made.sums(workspace, kind, UsageFilter(), by)
                assert await access.usage.list_sums(workspace, kind, UsageFilter(), by, limit=999) == expected, (by, kind)


@pytest.mark.parametrize("environment", [None, "live", "test"])
async def test_sums_are_of_what_is_asked_for(access: Access, made: Made, environment: Environment | None) -> None:
    """D-25, D-29: of one environment, one key, some days, both ends included."""
    by = frozenset[UsageField]({"key", "day"})
    for key_id in (None, *made.keys, "unknown"):
        for since, until in (
            (None, None),
            (DAY + timedelta(days=1), None),
            (None, DAY),
            (DAY + timedelta(days=1),) * 2,
            (DAY + timedelta(days=9), None),
        ):
            which = UsageFilter(key_id=key_id, environment=environment, since=since, until=until)
            assert await access.usage.list_sums(made.workspace, "api", which, by, limit=999) == made.sums(made.workspace, "api", which, by)


async def test_sums_stay_when_the_calls_are_forgotten(access: Access, made: Made) -> None:
    """D-17: rows 30 days, sums for ever; only deleting the workspace takes them."""
    by = frozenset[UsageField]({"key"})
    access.clock.at += timedelta(days=40)
    assert await access.usage.delete_old_calls() == len(made.calls)
    assert await access.usage.list_sums(made.workspace, "api", UsageFilter(), by, limit=999) == made.sums(
        made.workspace, "api", UsageFilter(), by
    )
    await access.workspaces.delete(made.workspace, by=OPERATOR)

    assert await access.usage.list_sums(made.workspace, "api", UsageFilter(), by, limit=999) == []
    assert await access.usage.list_sums(made.other, "api", UsageFilter(), by, limit=999) == made.sums(made.other, "api", UsageFilter(), by)


async def test_a_limit_cuts_the_sums_short(access: Access, made: Made) -> None:
    """D-16: no answer grows without bound; those that come are the first."""
    by = frozenset(FIELDS)
    whole = await access.usage.list_sums(made.workspace, "api", UsageFilter(), by, limit=999)

    assert await access.usage.list_sums(made.workspace, "api", UsageFilter(), by, limit=3) == whole[:3]


async def test_calls_are_listed_by_what_is_asked(access: Access, made: Made) -> None:
    """D-29: one row a call, newest first, in pages; *until* is not among them."""
    key_id, middle = next(iter(made.keys)), datetime(DAY.year, DAY.month, DAY.day + 1, 12, tzinfo=UTC)
    own = sorted((call for call in made.calls if call.key_id == key_id), key=lambda call: call.at, reverse=True)
    cases: list[tuple[CallFilter, Callable[[KeyCall], bool]]] = [
        (CallFilter(), lambda _: True),
        (CallFilter(since=own[3].at), lambda call: call.at >= own[3].at),
        (CallFilter(until=own[3].at), lambda call: call.at < own[3].at),
        (CallFilter(status=404), lambda call: call.status == 404),
        (CallFilter(route="/a", since=middle), lambda call: call.route == "/a" and call.at >= middle),
        (CallFilter(route="/nowhere"), lambda _: False),
    ]
    for which, holds in cases:
        expected = [call for call in own if holds(call)]
        assert await access.usage.list_call_page(made.workspace, key_id, which, limit=999, offset=0) == (expected, len(expected))
        assert await access.usage.list_call_page(made.workspace, key_id, which, limit=2, offset=1) == (expected[1:3], len(expected))
    assert await access.usage.list_call_page(made.other, key_id, CallFilter(), limit=9, offset=0) == ([], 0)
