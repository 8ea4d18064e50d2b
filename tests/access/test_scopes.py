"""The grammar of scopes."""

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
grant_sets = st.frozensets(st.sampled_from(GRANTS), max_size=6)


def grant_set(*granted: str) -> frozenset[str]:
    """Return grants as a key stores them."""
    return frozenset(granted)


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_grants_itself_in_either_spelling(name: str) -> None:
    """`.` and `:` mean the same, in the granted and in the required scope."""
    dotted, coloned = name.replace(":", "."), name.replace(".", ":")

    assert all(grants(grant_set(granted), required) for granted in (dotted, coloned) for required in (dotted, coloned))


@pytest.mark.parametrize("name", ORDINARY)
def test_wildcards_grant_the_scopes_of_spec_5_2(name: str) -> None:
    """`{resource}:*` grants all actions of a resource, `*:read` reads everything, `*` grants everything."""
    resource, _, action = name.replace(".", ":").partition(":")

    assert grants(grant_set("*"), name)
    assert grants(grant_set(f"{resource}:*"), name)
    assert grants(grant_set("*:read"), name) == (action == "read")


@pytest.mark.parametrize("name", PLATFORM)
def test_no_wildcard_grants_a_platform_scope(name: str) -> None:
    """Platform scopes are outside `*`, `*:read` and `{r}:*`."""
    assert not grants(grant_set("*", "*:read", "platform:*", "*:*"), name)
    assert grants(grant_set(name), name)


@given(name=names, others=grant_sets)
def test_writing_never_implies_reading(name: str, others: frozenset[str]) -> None:
    """`write` never implies `read`, nor any action another."""
    resource, _, action = name.replace(".", ":").partition(":")
    unrelated = frozenset(grant for grant in others if "*" not in grant and grant.replace(".", ":") != f"{resource}:{action}")

    assert not grants(unrelated, name)


@given(held_grants=grant_sets, more_grants=grant_sets, name=names)
def test_more_grants_never_take_a_scope_away(held_grants: frozenset[str], more_grants: frozenset[str], name: str) -> None:
    """Grants only add up."""
    assert grants(held_grants | more_grants, name) or not grants(held_grants, name)


@pytest.mark.parametrize("invalid_scope", ["", "*", "*:read", "brain", "brain:", ":read", "brain:*", "brain:read:more", "::"])
def test_an_invalid_scope_is_never_granted(invalid_scope: str) -> None:
    """A route needs one action of one resource; a mistake in a table must not open the route."""
    assert not grants(grant_set("*", "*:read", "brain:*", invalid_scope), invalid_scope)


@given(held_grants=grant_sets, required=st.lists(names, max_size=4))
def test_any_and_all_agree_with_one(held_grants: frozenset[str], required: list[str]) -> None:
    """A key can be checked for one permission, any of a list, and all of a list."""
    results = [grants(held_grants, name) for name in required]

    assert grants_any(held_grants, required) == any(results)
    assert grants_all(held_grants, required) == all(results)


@given(held_grants=grant_sets, grant=st.sampled_from(GRANTS), name=names)
def test_a_covered_grant_gives_no_new_scope(held_grants: frozenset[str], grant: str, name: str) -> None:
    """The creator has every scope that a covered grant gives."""
    if can_delegate(held_grants, grant) and grants(grant_set(grant), name):
        assert grants(held_grants, name)


@given(grant=st.sampled_from(GRANTS), others=grant_sets)
def test_a_grant_covers_itself(grant: str, others: frozenset[str]) -> None:
    """Having a grant by name covers it."""
    assert can_delegate(others | {grant}, grant)


def test_single_actions_do_not_cover_their_wildcard() -> None:
    """`plans:*` also grants actions of future versions."""
    all_actions = grant_set("plans.read", "plans.write")

    assert not can_delegate(all_actions, "plans:*")
    assert can_delegate(grant_set("*"), "plans:*")
    assert not can_delegate(grant_set("*"), "platform:metrics")
    assert not can_delegate(grant_set("*", "platform:*"), "platform:*")
    assert list_not_delegable(grant_set("*:read"), ["brain:read", "brain:write", "*"]) == ["brain:write", "*"]


@given(st.lists(st.sampled_from(GRANTS).map(lambda name: name.replace(":", ".")), max_size=8))
def test_parsing_grants_twice_changes_nothing(grants_: list[str]) -> None:
    """Grants are stored in one spelling, each once."""
    parsed, errors = parse_grants(grants_, allow_platform_scopes=True)

    assert errors == []
    assert parse_grants(parsed, allow_platform_scopes=True) == (parsed, [])
    assert set(parsed) <= set(GRANTS)


def test_an_unknown_scope_is_rejected_with_the_nearest_one() -> None:
    """An error names the misspelled scope and the one that was probably intended."""
    valid, errors = parse_grants(["brain:reed", "*:write", "brain:read", "x" * 10_000], allow_platform_scopes=True)

    assert valid == ("brain:read",)
    assert errors[0] == "brain:reed: unknown scope; the nearest is brain:read"
    assert errors[1].startswith("*:write: unknown scope")
    assert len(errors[2]) < 200


def test_platform_scopes_are_granted_only_by_the_command_line() -> None:
    """No other interface may grant them."""
    assert parse_grants(["platform:metrics"], allow_platform_scopes=False) == (
        (),
        ["platform:metrics: only the command line can grant platform scopes"],
    )
    assert parse_grants(["platform.metrics"], allow_platform_scopes=True) == (("platform:metrics",), [])
    assert parse_grants(["platform:*"], allow_platform_scopes=True)[0] == ()


def test_presets_name_known_permissions() -> None:
    """Presets are data, with their canonical names."""
    assert all(parse_grants(preset, allow_platform_scopes=False) == (tuple(preset), []) for preset in PRESETS.values())


def test_the_spec_s_permissions_are_all_known() -> None:
    """The table of permissions, name by name."""
    table = (
        "plans.read plans.write phases.write sessions.read sessions.write tools.read templates.read templates.instantiate "
        "notify:read notify:write notify:send"
    )

    assert set(table.split()) <= set(scopes.SCOPES)
