"""The grammar of scopes (spec 5.2, 5.3, D-23, D-24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access import scopes
from rookery.access.scopes import PRESETS, SCOPES, can_delegate, grants, grants_all, grants_any, list_not_delegable, parse_grants

NAMES = sorted(SCOPES)
PLATFORM = [name for name in NAMES if name.startswith("platform:")]
ORDINARY = [name for name in NAMES if not name.startswith("platform:")]
GRANTS = [*NAMES, "*", "*:read", *sorted({f"{name.replace('.', ':').partition(':')[0]}:*" for name in ORDINARY})]

names = st.sampled_from(NAMES)
held_sets = st.frozensets(st.sampled_from(GRANTS), max_size=6)


def held(*granted: str) -> frozenset[str]:
    """Return grants as a key holds them."""
    return frozenset(granted)


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_grants_itself_in_either_spelling(name: str) -> None:
    """D-23: `.` and `:` mean the same, in what is held and in what is needed."""
    dotted, coloned = name.replace(":", "."), name.replace(".", ":")

    assert all(grants(held(have), need) for have in (dotted, coloned) for need in (dotted, coloned))


@pytest.mark.parametrize("name", ORDINARY)
def test_wildcards_grant_what_spec_5_2_says(name: str) -> None:
    """Spec 5.2, rule 4: `{resource}:*` all actions of a resource, `*:read` reading everything, `*` everything."""
    resource, _, action = name.replace(".", ":").partition(":")

    assert grants(held("*"), name)
    assert grants(held(f"{resource}:*"), name)
    assert grants(held("*:read"), name) == (action == "read")


@pytest.mark.parametrize("name", PLATFORM)
def test_no_wildcard_grants_a_platform_scope(name: str) -> None:
    """D-23: platform scopes lie outside `*`, `*:read` and `{r}:*`."""
    assert not grants(held("*", "*:read", "platform:*", "*:*"), name)
    assert grants(held(name), name)


@given(name=names, others=held_sets)
def test_writing_never_implies_reading(name: str, others: frozenset[str]) -> None:
    """D-23: `write` never implies `read`, nor any action another."""
    resource, _, action = name.replace(".", ":").partition(":")
    narrow = frozenset(grant for grant in others if "*" not in grant and grant.replace(".", ":") != f"{resource}:{action}")

    assert not grants(narrow, name)


@given(held_set=held_sets, more=held_sets, name=names)
def test_more_grants_never_take_a_scope_away(held_set: frozenset[str], more: frozenset[str], name: str) -> None:
    """D-23: grants only add up."""
    assert grants(held_set | more, name) or not grants(held_set, name)


@pytest.mark.parametrize("odd", ["", "*", "*:read", "brain", "brain:", ":read", "brain:*", "brain:read:more", "::"])
def test_what_is_no_scope_is_granted_to_nobody(odd: str) -> None:
    """Spec 5.2: a route needs one action of one resource; a mistake in a table must not open it."""
    assert not grants(held("*", "*:read", "brain:*", odd), odd)


@given(held_set=held_sets, wanted=st.lists(names, max_size=4))
def test_any_and_all_agree_with_one(held_set: frozenset[str], wanted: list[str]) -> None:
    """Spec 5.3: a key can be asked for one permission, any of a list, all of a list."""
    each = [grants(held_set, name) for name in wanted]

    assert grants_any(held_set, wanted) == any(each)
    assert grants_all(held_set, wanted) == all(each)


@given(held_set=held_sets, grant=st.sampled_from(GRANTS), name=names)
def test_nobody_hands_on_more_than_they_hold(held_set: frozenset[str], grant: str, name: str) -> None:
    """D-24: whatever a covered grant opens, its giver could open."""
    if can_delegate(held_set, grant) and grants(held(grant), name):
        assert grants(held_set, name)


@given(grant=st.sampled_from(GRANTS), others=held_sets)
def test_everybody_may_hand_on_what_they_hold(grant: str, others: frozenset[str]) -> None:
    """D-24: holding a grant by name covers it."""
    assert can_delegate(others | {grant}, grant)


def test_actions_held_one_by_one_do_not_cover_their_wildcard() -> None:
    """D-24: `plans:*` also grants actions still to come."""
    every = held("plans.read", "plans.write")

    assert not can_delegate(every, "plans:*")
    assert can_delegate(held("*"), "plans:*")
    assert not can_delegate(held("*"), "platform:metrics")
    assert not can_delegate(held("*", "platform:*"), "platform:*")
    assert list_not_delegable(held("*:read"), ["brain:read", "brain:write", "*"]) == ["brain:write", "*"]


@given(st.lists(st.sampled_from(GRANTS).map(lambda name: name.replace(":", ".")), max_size=8))
def test_reading_grants_twice_changes_nothing(written: list[str]) -> None:
    """D-23: grants are stored in one spelling, each once."""
    once, wrong = parse_grants(written, allow_platform_scopes=True)

    assert wrong == []
    assert parse_grants(once, allow_platform_scopes=True) == (once, [])
    assert set(once) <= set(GRANTS)


def test_an_unknown_scope_is_refused_with_the_nearest() -> None:
    """D-23, D-12: what is misspelled is named, with what was probably meant."""
    good, wrong = parse_grants(["brain:reed", "*:write", "brain:read", "x" * 10_000], allow_platform_scopes=True)

    assert good == ("brain:read",)
    assert wrong[0] == "brain:reed: unknown scope; the nearest is brain:read"
    assert wrong[1].startswith("*:write: unknown scope")
    assert len(wrong[2]) < 200


def test_platform_scopes_are_granted_by_the_command_line_alone() -> None:
    """D-23: no other way in may grant them."""
    assert parse_grants(["platform:metrics"], allow_platform_scopes=False) == (
        (),
        ["platform:metrics: only the command line can grant platform scopes"],
    )
    assert parse_grants(["platform.metrics"], allow_platform_scopes=True) == (("platform:metrics",), [])
    assert parse_grants(["platform:*"], allow_platform_scopes=True)[0] == ()


def test_presets_name_known_permissions() -> None:
    """D-03: presets are data, in the spec's spelling."""
    assert all(parse_grants(preset, allow_platform_scopes=False) == (tuple(preset), []) for preset in PRESETS.values())


def test_the_spec_s_permissions_are_all_known() -> None:
    """Spec 5.3: the table of permissions, name by name."""
    table = (
        "plans.read plans.write phases.write sessions.read sessions.write tools.read templates.read templates.instantiate "
        "notify:read notify:write notify:send"
    )

    assert set(table.split()) <= set(scopes.SCOPES)
