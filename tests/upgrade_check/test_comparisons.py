"""The comparisons of `make upgrade-check`: differences that clients of the older version would see, and the table of them."""

from __future__ import annotations

import json

import pytest

from tests.upgrade_check.comparisons import (
    ANNOUNCED,
    Comparison,
    compare_outcomes,
    compare_readings,
    describe_difference,
    render_json,
    render_table,
)
from tests.upgrade_check.versions import resolve_commit


def test_new_fields_are_no_difference() -> None:
    """A client of the older version finds its fields with their values; more fields and other orders of fields are allowed."""
    assert describe_difference({"id": 1, "tags": [{"name": "a"}]}, {"tags": [{"name": "a", "count": 2}], "id": 1, "new": True}) == ""


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ({"id": 1}, {}, "answer: the field 'id' is missing"),
        ({"plan": {"status": "active"}}, {"plan": {"status": "draft"}}, "plan.status: 'active' before, 'draft' now"),
        ([1, 2], [1], "answer: 2 elements before, 1 now"),
        ({"ids": ["a", "b"]}, {"ids": ["b", "a"]}, "ids[0]: 'a' before, 'b' now"),
        (None, {"id": 1}, "answer: None before, {'id': 1} now"),
        (True, None, "answer: True before, None now"),
    ],
)
def test_a_difference_names_its_place_and_both_values(old: object, new: object, difference: str) -> None:
    """Lost fields, other values, lost elements and another order are found."""
    assert describe_difference(old, new) == difference


def test_an_answer_that_is_missing_is_a_difference() -> None:
    """An answer of the older version is compared even if this one has no such answer."""
    (comparison,) = compare_readings("clean stop", {"plans": [1]}, {})

    assert comparison.difference == "answer: [1] before, None now"


def test_only_the_announced_value_replaces_an_older_one() -> None:
    """An announced change is no difference; another value in its place is one, and so are the other elements of the answer."""
    ((name, number), (before, now)), *_ = ANNOUNCED.items()
    old = ["200"] * number + [before, "200"]
    for values, difference in (
        (["200"] * number + [now, "200"], ""),
        (["200"] * number + ["500", "200"], f"[{number}]: '{now}' before, '500' now"),
        (["200"] * number + [now, now], f"[{number + 1}]: '200' before, '{now}' now"),
    ):
        (comparison,) = compare_readings("clean stop", {name: old}, {name: values})
        assert comparison.difference == difference
    (other,) = compare_readings("clean stop", {"another": old}, {"another": ["200"] * number + [now, "200"]})
    assert other.difference == f"[{number}]: '{before}' before, '{now}' now"


def test_the_table_has_a_row_for_each_comparison_and_names_the_differences() -> None:
    """A column for each way of upgrading; one that a way does not have is a dash."""
    comparisons = [
        *compare_outcomes("clean stop", {"claim": (200, 200), "doctor": (0, 1)}),
        *compare_outcomes("kill -9", {"claim": (200, 200)}),
    ]

    lines = render_table(comparisons, ["clean stop", "kill -9"]).splitlines()

    assert [line.split() for line in lines[2:4]] == [["claim", "same", "same"], ["doctor", "differs", "-"]]
    assert "  doctor, clean stop: answer: 0 before, 1 now" in lines
    assert lines[-1] == "3 comparisons (clean stop: 2, kill -9: 1), 1 differ."


def test_the_json_has_all_comparisons() -> None:
    """`--json` for programs."""
    document = json.loads(render_json("7bcf9942", [Comparison("kill -9", "claim", "")], {"memories": 440}))

    assert document == {
        "old": "7bcf9942",
        "figures": {"memories": 440},
        "differences": 0,
        "comparisons": [{"way": "kill -9", "name": "claim", "same": True, "difference": None}],
    }


def test_a_commit_that_does_not_exist_is_named_with_advice() -> None:
    """The message has the wrong value and one that works."""
    with pytest.raises(ValueError, match=r"'no-such-commit' is no commit of this repository\. Name an older one, such as "):
        resolve_commit("no-such-commit")
