"""Charts by day, for the macro `chart`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from rookery_client.generated import models


def build_day_chart(first: date, days: int, series: Sequence[tuple[str, str, Mapping[str, float]]]) -> dict[str, object]:
    """
    Return the data of a chart of *days* days from *first* on.

    Args:
        series: A label, the name of a colour of the stylesheet, and the values by day in ISO format. Days without a value are 0.
    """
    dates = [first + timedelta(days=offset) for offset in range(days)]
    return {
        "x": [int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) for day in dates],
        "series": [
            {"label": label, "kind": color, "values": [values.get(day.isoformat(), 0) for day in dates]} for label, color, values in series
        ],
    }


def build_call_chart(figures: models.Analytics, first: date, days: int) -> dict[str, object]:
    """Return the chart of tool calls and their errors. The groups of *figures* are days."""
    calls = {str(group.day): group.calls for group in figures.data}
    errors = {str(group.day): group.errors for group in figures.data}
    return build_day_chart(first, days, [("calls", "accent", calls), ("errors", "bad", errors)])
