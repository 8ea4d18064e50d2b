"""Numbers and ids as people read them."""

from __future__ import annotations

import pytest

from rookery.console.formats import format_counted, format_duration, format_field_value, format_quantity, shorten_id, show_code_marks


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1204.0, "1\u202f204"),
        (0.000037, "0.000037"),
        (0.00123456, "0.001235"),
        (0.5, "0.5"),
        (1234.5678, "1\u202f235"),
    ],
)
def test_small_quantities_keep_their_digits(value: float | None, text: str) -> None:
    """A cost of a few millionths is not shown as 0.0000."""
    assert format_quantity(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(9.4, "9.4\u202fms"), (353.2, "353\u202fms"), (2138, "2.14\u202fs"), (45_000, "45.0\u202fs"), (300_000, "5\u202fmin")],
)
def test_durations_have_a_fitting_unit(milliseconds: float, text: str) -> None:
    """Seconds are not written as thousands of milliseconds."""
    assert format_duration(milliseconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 memories"), (1, "1 memory"), (2, "2 memories"), (1500, "1\u202f500 memories")])
def test_a_number_has_its_noun(count: int, text: str) -> None:
    """One thing is not named in the plural."""
    assert format_counted(count, "memory", "memories") == text
    assert format_counted(count, "line").endswith("line" if count == 1 else "lines")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), ("draft", "draft"), (True, "true"), (5, "5"), ({"all": True, "tags": ["ö"]}, '{"all": true, "tags": ["ö"]}')],
)
def test_values_of_changed_fields_are_json(value: object, text: str) -> None:
    """The page of the audit log shows what the API has, not how Python writes it."""
    assert format_field_value(value) == text


def test_ids_are_short_and_names_are_not() -> None:
    """The end of an id sets it apart; the whole id is its title. Backticks become code, and markup stays text."""
    assert shorten_id("01a1fbcc-0000-7000-8000-0123456789ab") == '<code title="01a1fbcc-0000-7000-8000-0123456789ab">…456789ab</code>'
    assert shorten_id("claude-code") == "claude-code"
    assert show_code_marks("by `<b>` here") == "by <code>&lt;b&gt;</code> here"
