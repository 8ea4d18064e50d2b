"""Charts by day, for the macro `chart`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal

from rookery_client.generated import models

Color = Literal["accent", "bad", "busy", "soft-busy"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WHOLE_STEPS = tuple(digit * 10**power for power in range(10) for digit in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """
    The bars of one colour.

    Attributes:
        color: The name of a variable of the stylesheet.
        values: One value for each day.
        whole: The value of all days together.
    """

    label: str
    color: Color
    values: tuple[float, ...]
    whole: float


@dataclass(frozen=True, slots=True)
class DayChart:
    """
    A chart of consecutive days.

    Attributes:
        days: The days as people read them, such as `9 Nov`. Days are in UTC.
        series: The later ones are part of the first one, and are drawn in front of it.
    """

    days: tuple[str, ...]
    series: tuple[ChartSeries, ...]

    def to_plot(self) -> dict[str, object]:
        """Return what the script draws. Numbers of things have steps of whole numbers."""
        is_whole = all(float(value).is_integer() for series in self.series for value in series.values)
        return {
            "days": self.days,
            "steps": _WHOLE_STEPS if is_whole else None,
            "colors": [series.color for series in self.series],
            "values": [series.values for series in self.series],
        }


def build_day_chart(first: date, days: int, series: Sequence[tuple[str, Color, Mapping[str, float]]]) -> DayChart:
    """
    Return the chart of *days* days from *first* on.

    Args:
        series: A label, a colour, and the values by day in ISO format. Days without a value are 0, and the sum stands for all days.
    """
    dates = [first + timedelta(days=offset) for offset in range(days)]
    return DayChart(
        days=tuple(f"{day.day} {_MONTHS[day.month - 1]}" for day in dates),
        series=tuple(_make_series(label, color, tuple(values.get(day.isoformat(), 0) for day in dates)) for label, color, values in series),
    )


def _make_series(label: str, color: Color, values: tuple[float, ...]) -> ChartSeries:
    return ChartSeries(label, color, values, sum(values))


def build_call_chart(figures: models.Analytics, first: date, days: int) -> DayChart:
    """Return the chart of tool calls and their errors. The groups of *figures* are days."""
    calls = {str(group.day): group.calls for group in figures.data}
    errors = {str(group.day): group.errors for group in figures.data}
    return build_day_chart(first, days, [("calls", "accent", calls), ("errors", "bad", errors)])


def build_duration_chart(figures: models.Analytics, first: date, days: int) -> DayChart:
    """Return the chart of the time of tool calls: the 95th percentile, with the median in front. The groups of *figures* are days."""
    slow = {str(group.day): round(group.p95_ms or 0, 1) for group in figures.data}
    median = {str(group.day): round(group.p50_ms or 0, 1) for group in figures.data}
    chart = build_day_chart(first, days, [("p95, ms", "soft-busy", slow), ("median, ms", "busy", median)])
    wholes = (round(figures.p95_ms or 0, 1), round(figures.p50_ms or 0, 1))
    return replace(chart, series=tuple(replace(series, whole=whole) for series, whole in zip(chart.series, wholes, strict=True)))
