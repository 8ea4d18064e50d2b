"""The times of campaigns: a local time in a time zone, or a time with an offset. No I/O but the time zone database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rookery.kernel.errors import ValidationFailed
from rookery.notifications.models import CampaignSchedule

DEFAULT_TIME_ZONE = "UTC"
MISSED_AFTER = timedelta(hours=1)
"""A campaign that could not start within this time after its schedule is missed."""

MAX_DAYS_AHEAD = 366 * 5


def parse_schedule(local: str, time_zone: str | None, now: datetime, *, field: str = "schedule") -> CampaignSchedule:
    """
    Return the time of a schedule.

    A time without an offset is in *time_zone*, by default UTC. Of a time that occurs twice at the end of summer time, the first is used.

    Args:
        field: The field that errors name.

    Raises:
        ValidationFailed: The time is invalid, in the past, or does not exist in the zone; or the zone is unknown.
    """
    zone_name = time_zone or DEFAULT_TIME_ZONE
    try:
        zone = ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        advice = "use a name of the IANA database, such as Europe/Vienna"
        raise ValidationFailed({f"{field}.time_zone": [f"{zone_name[:100]!r} is not a known time zone; {advice}"]}) from None
    try:
        moment = datetime.fromisoformat(local)
    except ValueError:
        message = "must be an ISO 8601 time, such as 2026-12-01T09:00 or 2026-12-01T09:00:00+01:00"
        raise ValidationFailed({f"{field}.at": [message]}) from None
    try:
        at = (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)
        exists = moment.tzinfo is not None or at.astimezone(zone).replace(tzinfo=None) == moment
    except OverflowError:
        raise ValidationFailed({f"{field}.at": ["is outside the years 1 to 9999"]}) from None
    if not exists:
        raise ValidationFailed({f"{field}.at": [f"{local} does not exist in {zone_name}: clocks are set forward then"]})
    if at <= now:
        raise ValidationFailed({f"{field}.at": [f"{local} ({zone_name}) is in the past; now it is {_format(now, zone)}"]})
    if at - now > timedelta(days=MAX_DAYS_AHEAD):
        raise ValidationFailed({f"{field}.at": [f"must be within {MAX_DAYS_AHEAD} days"]})
    return CampaignSchedule(local=local, time_zone=zone_name, at=at)


def _format(now: datetime, zone: ZoneInfo) -> str:
    return now.astimezone(zone).isoformat(timespec="seconds")
