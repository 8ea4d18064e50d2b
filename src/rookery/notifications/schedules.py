"""The times of campaigns: a local time in a time zone, or a time with an offset. No I/O but the time zone database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.sentences import suggest
from rookery.notifications.models import CampaignSchedule

DEFAULT_TIME_ZONE = "UTC"
MISSED_AFTER = timedelta(hours=1)
"""A campaign that could not start within this time after its schedule is missed."""

MAX_DAYS_AHEAD = 366 * 5
_LOCAL_NAMES, _LOCAL_FOLDERS = frozenset({"localtime", "posixrules", "Factory"}), ("right/", "posix/")
"""Files beside the IANA database: the zone of the host, and copies that count leap seconds."""


def parse_schedule(local: str, time_zone: str | None, now: datetime, *, field: str = "") -> CampaignSchedule:
    """
    Return the time of a schedule.

    A time without an offset is in *time_zone*, by default UTC. Of a time that occurs twice at the end of summer time, the first is used.

    Args:
        field: The field with `at` and `time_zone`, which errors name; empty: they are fields of the body.

    Raises:
        ValidationFailed: The time is invalid, in the past, or does not exist in the zone; or the zone is unknown.
    """
    at_field, zone_field = (f"{field}.at", f"{field}.time_zone") if field else ("at", "time_zone")
    zone_name = DEFAULT_TIME_ZONE if time_zone is None else time_zone
    zone = _find_zone(zone_name)
    if zone is None:
        message = f"{zone_name[:100]!r} is not a name of the IANA time zone database, such as Europe/Vienna"
        raise ValidationFailed({zone_field: [message + suggest(zone_name, available_timezones())]})
    try:
        moment = datetime.fromisoformat(local)
    except ValueError:
        message = "must be an ISO 8601 time, such as 2026-12-01T09:00 or 2026-12-01T09:00:00+01:00"
        raise ValidationFailed({at_field: [message]}) from None
    try:
        at = (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)
        exists = moment.tzinfo is not None or at.astimezone(zone).replace(tzinfo=None) == moment
    except OverflowError:
        raise ValidationFailed({at_field: ["is outside the years 1 to 9999"]}) from None
    if not exists:
        raise ValidationFailed({at_field: [f"{local} does not exist in {zone_name}: clocks are set forward then"]})
    if at <= now:
        raise ValidationFailed({at_field: [f"{local} ({zone_name}) is in the past; now it is {_format(now, zone)}"]})
    if at - now > timedelta(days=MAX_DAYS_AHEAD):
        raise ValidationFailed({at_field: [f"must be within {MAX_DAYS_AHEAD} days"]})
    return CampaignSchedule(at=local, time_zone=zone_name, at_utc=at)


def _find_zone(name: str) -> ZoneInfo | None:
    """Return a zone of the IANA database. Return None for an unknown name, and for one that means another time on another host."""
    if name in _LOCAL_NAMES or name.startswith(_LOCAL_FOLDERS):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _format(now: datetime, zone: ZoneInfo) -> str:
    return now.astimezone(zone).isoformat(timespec="seconds")
