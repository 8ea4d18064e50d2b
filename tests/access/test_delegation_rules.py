"""Limits of what a key may do with other keys: never more than it can do itself."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rookery.access.delegation import can_see, require_delegable
from rookery.access.errors import DelegationDenied, ScopeMissing
from rookery.access.models import Key, KeyKind, KeyRestrictions, Tier
from rookery.access.networks import contains, covers_all, parse_networks
from rookery.access.scopes import SCOPES
from rookery.kernel.errors import PermissionDenied
from tests.access.capabilities import MOMENTS, NOW, capabilities_of, exceeds_rate, list_excesses, make_key

GRANTS = ["*", "*:read", "brain:*", "keys:*", "brain:read", "brain:write", "brain:admin", "mcp:write", "keys:write", "platform:audit"]
RANGES = ["192.0.2.1", "192.0.2.0/25", "192.0.2.0/24", "203.0.113.9", "2001:db8::/32", "0.0.0.0/0", "::/0", "::ffff:192.0.2.0/120"]
GLOBS = ["*", "web/*", "web/search", "web/s*", "*/search", "time/*", "[wt]*", "web/?earch", "mail/*"]

_some_names = st.none() | st.frozensets(st.sampled_from(["acme", "globex", "api", "web", "time"]), max_size=3)
_limits = st.dictionaries(st.sampled_from(GLOBS[:5]), st.sampled_from([1, 5, 60]), max_size=2)
_moments = st.none() | st.sampled_from(MOMENTS[1:])
reaches = st.builds(
    KeyRestrictions,
    servers=_some_names,
    tools=st.none() | st.lists(st.sampled_from(GLOBS), max_size=3).map(tuple),
    orgs=_some_names,
    projects=_some_names,
    tool_limits=_limits,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "scopes": st.lists(st.sampled_from(GRANTS), min_size=1, max_size=4, unique=True).map(tuple),
        "environment": st.sampled_from(["live", "test"]),
        "workspace_id": st.sampled_from([1, 2]),
        "agent_id": st.sampled_from([None, "rook", "owl"]),
        "restrictions": reaches,
        "expires_at": _moments,
        "delete_after": _moments,
        "ip_restriction": st.booleans(),
        "ip_list": st.lists(st.sampled_from(RANGES), max_size=3).map(tuple),
    },
)
kinds: st.SearchStrategy[KeyKind] = st.sampled_from(["api", "agent"])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Key, Key]:
    """Return two keys that differ in few fields, so that the first often covers the second."""
    creator = make_key(draw(kinds), **draw(fields))
    new_values = draw(fields)
    changed_names = draw(st.sets(st.sampled_from(sorted(new_values)), max_size=3)) if new_values else set[str]()
    defaults = make_key(draw(kinds))
    common = {
        name: getattr(creator, name) for name in Key.__dataclass_fields__ if name not in {"id", "kind", "rate_limit_tier", "rate_limit"}
    }
    return creator, replace(defaults, **{**common, **{name: new_values[name] for name in changed_names}}, id="other")


def may_delegate(creator: Key, target: Key) -> bool:
    """Return whether *creator* may create or change *target*."""
    try:
        require_delegable(creator, target)
    except (DelegationDenied, ScopeMissing, PermissionDenied):
        return False
    return True


@given(pairs())
@settings(max_examples=600)
@example((make_key(expires_at=MOMENTS[1]), make_key(delete_after=MOMENTS[1])))
@example((make_key(delete_after=MOMENTS[1]), make_key(delete_after=MOMENTS[2], expires_at=MOMENTS[1])))
def test_no_key_delegates_more_than_it_can_do_itself(pair: tuple[Key, Key]) -> None:
    """A key that another key may create or change can do nothing that the other cannot, on any side."""
    creator, target = pair
    if not may_delegate(creator, target):
        return

    assert list_excesses(capabilities_of(target), capabilities_of(creator)) == []


@given(pairs())
def test_every_key_may_delegate_itself_and_less(pair: tuple[Key, Key]) -> None:
    """A key may change itself, as long as it gains nothing."""
    creator, _ = pair
    reduced = replace(
        creator,
        expires_at=min(NOW + timedelta(minutes=1), creator.expires_at or MOMENTS[-1]),
        restrictions=replace(creator.restrictions, servers=frozenset(), orgs=frozenset()),
    )

    assert may_delegate(creator, creator)
    assert may_delegate(creator, reduced)


RATES = [
    *(make_key(rate_limit_tier=tier) for tier in Tier),
    *(make_key("agent", rate_limit=rate) for rate in (1, 16, 17, 166, 167, 599, 600, 601, 833, 834, 1_000_000)),
]


@pytest.mark.parametrize("origin", RATES, ids=lambda key: str(key.rate_limit_tier or key.rate_limit))
def test_no_chain_of_keys_raises_the_rate_limit(origin: Key) -> None:
    """Neither directly nor through keys of the other kind, such as a free key that reaches a higher tier through an agent key."""
    reachable = [origin]
    for maker in reachable:
        reachable += [key for key in RATES if key not in reachable and may_delegate(maker, key)]

    assert [(key.rate_limit_tier, key.rate_limit) for key in reachable if exceeds_rate(key, origin)] == []


@pytest.mark.parametrize("tier", list(Tier))
def test_any_api_key_may_create_an_agent_key_with_the_default_rate(tier: Tier) -> None:
    """600 a minute, more than the lower tiers have; otherwise they could not create a usual agent key."""
    assert may_delegate(make_key(rate_limit_tier=tier), make_key("agent", rate_limit=600))
    assert may_delegate(make_key(rate_limit_tier=tier), make_key("agent", rate_limit=601)) == (tier in {Tier.BUSINESS, Tier.ENTERPRISE})


@pytest.mark.parametrize(
    ("creator_fields", "requested_fields", "field"),
    [
        ({"environment": "test"}, {}, "environment"),
        ({}, {"workspace_id": 2}, "workspace_id"),
        ({"restrictions": KeyRestrictions(servers=frozenset({"web"}))}, {}, "servers"),
        (
            {"restrictions": KeyRestrictions(servers=frozenset({"web"}))},
            {"restrictions": KeyRestrictions(servers=frozenset({"web", "time"}))},
            "servers",
        ),
        ({"restrictions": KeyRestrictions(orgs=frozenset())}, {}, "orgs"),
        (
            {"restrictions": KeyRestrictions(projects=frozenset({"api"}))},
            {"restrictions": KeyRestrictions(projects=frozenset({"web"}))},
            "projects",
        ),
        ({"restrictions": KeyRestrictions(tools=("web/*",))}, {}, "tools"),
        ({"restrictions": KeyRestrictions(tools=("web/*",))}, {"restrictions": KeyRestrictions(tools=("*",))}, "tools"),
        ({"restrictions": KeyRestrictions(tools=())}, {"restrictions": KeyRestrictions(tools=("web/search",))}, "tools"),
        ({"restrictions": KeyRestrictions(tool_limits={"web/*": 5})}, {}, "tool_limits"),
        (
            {"restrictions": KeyRestrictions(tool_limits={"web/*": 5})},
            {"restrictions": KeyRestrictions(tool_limits={"web/*": 6})},
            "tool_limits",
        ),
        ({"rate_limit_tier": Tier.PRO}, {"rate_limit_tier": Tier.BUSINESS}, "rate_limit_tier"),
        ({"rate_limit_tier": Tier.BUSINESS}, {"rate_limit_tier": Tier.ENTERPRISE}, "rate_limit_tier"),
        ({"expires_at": MOMENTS[1]}, {}, "expires_at"),
        ({"expires_at": MOMENTS[1]}, {"expires_at": MOMENTS[1] + timedelta(microseconds=1)}, "expires_at"),
        ({"delete_after": MOMENTS[1]}, {}, "expires_at"),
        ({"delete_after": MOMENTS[1]}, {"expires_at": MOMENTS[2]}, "expires_at"),
        ({"ip_restriction": True, "ip_list": ("192.0.2.0/24",)}, {}, "ip_list"),
        ({"ip_restriction": True}, {"ip_restriction": True, "ip_list": ("192.0.2.1",)}, "ip_list"),
        ({"agent_id": "rook"}, {"agent_id": "owl"}, "agent_id"),
        ({"agent_id": "rook", "scopes": ("brain:read",)}, {"agent_id": None, "scopes": ("brain:read",)}, "agent_id"),
        ({"agent_id": "rook", "scopes": ("sessions.write",)}, {"agent_id": None, "scopes": ("sessions.write",)}, "agent_id"),
        ({"agent_id": "rook", "scopes": ("sessions.*",)}, {"agent_id": "owl", "scopes": ("sessions.*",)}, "agent_id"),
    ],
)  # fmt: skip
def test_an_error_names_the_field_that_the_key_lacks(
    creator_fields: dict[str, object], requested_fields: dict[str, object], field: str
) -> None:
    """403 permission_denied with the field, so that the caller can see what to request instead."""
    scopes = {"scopes": ("brain:read", "keys:write")} if field == "agent_id" else {}
    with pytest.raises(DelegationDenied) as refusal:
        require_delegable(make_key("api", **{**scopes, **creator_fields}), make_key("api", **{**scopes, **requested_fields}))

    assert (refusal.value.status, refusal.value.code, refusal.value.body()["field"]) == (403, "permission_denied", field)


@pytest.mark.parametrize(
    ("creator_fields", "requested_fields"),
    [
        ({}, {"environment": "test"}),
        ({"scopes": ("*", "platform:workspaces")}, {"workspace_id": 2}),
        (
            {"restrictions": KeyRestrictions(servers=frozenset({"web", "time"}))},
            {"restrictions": KeyRestrictions(servers=frozenset({"web"}), orgs=frozenset({"acme"}))},
        ),
        (
            {"restrictions": KeyRestrictions(tools=("web/*", "time/now"))},
            {"restrictions": KeyRestrictions(tools=("web/s*", "web/search", "time/now"))},
        ),
        (
            {"restrictions": KeyRestrictions(tool_limits={"web/*": 5})},
            {"restrictions": KeyRestrictions(tool_limits={"web/*": 5, "*": 1_000})},
        ),
        ({"rate_limit_tier": Tier.PRO}, {"rate_limit_tier": Tier.FREE}),
        ({"expires_at": MOMENTS[1]}, {"expires_at": MOMENTS[1]}),
        ({"delete_after": MOMENTS[1]}, {"expires_at": MOMENTS[1]}),
        (
            {"ip_restriction": True, "ip_list": ("192.0.2.0/24", "2001:db8::/32")},
            {"ip_restriction": True, "ip_list": ("::ffff:192.0.2.9", "192.0.2.128/25", "2001:db8:1::/48")},
        ),
        ({"agent_id": "rook", "scopes": ("brain:read", "mcp:write")}, {"agent_id": "owl", "scopes": ("mcp:write",)}),
        ({"agent_id": "rook", "scopes": ("brain:*",)}, {"agent_id": None, "scopes": ("brain:read",)}),
        ({"agent_id": "rook", "scopes": ("sessions.*",)}, {"agent_id": None, "scopes": ("sessions.read",)}),
    ],
)
def test_a_key_may_delegate_what_it_has(creator_fields: dict[str, object], requested_fields: dict[str, object]) -> None:
    """As much or less. The agent of a key matters only for scopes that reach private memories or sessions."""
    require_delegable(make_key("api", **creator_fields), make_key("api", **requested_fields))


@pytest.mark.parametrize(("kind", "error"), [("api", ScopeMissing), ("agent", PermissionDenied)])
def test_a_missing_scope_is_rejected_with_the_error_of_the_guard(kind: str, error: type[Exception]) -> None:
    """The two kinds have two bodies. All actions of a resource do not include its wildcard."""
    creator = make_key("agent" if kind == "agent" else "api", scopes=("brain:read", "brain:write", "brain:delete", "brain:admin"))

    require_delegable(creator, make_key(scopes=("brain:read",), rate_limit_tier=Tier.FREE))
    for missing in ("brain:*", "*:read", "*", "mcp:read", "platform:audit"):
        with pytest.raises(error) as refusal:
            require_delegable(creator, make_key(scopes=("brain:read", missing)))
        assert missing in str(refusal.value)


@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope.startswith("platform:")])
def test_a_platform_scope_must_be_granted_by_name(scope: str) -> None:
    """A key with every wildcard may neither create a key with a platform scope nor change one."""
    assert not may_delegate(make_key(scopes=("*", "*:read")), make_key(scopes=(scope,)))
    assert may_delegate(make_key(scopes=("*", scope)), make_key(scopes=("*", scope)))


def test_visibility_of_keys_depends_on_environment_and_workspace() -> None:
    """A test key manages test keys only, a live key both; other workspaces need platform rights."""
    live_key, test_key, other_workspace_key = make_key(), make_key(environment="test"), make_key(workspace_id=2)
    operator = make_key(scopes=("platform:workspaces",))

    assert [can_see(live_key, key) for key in (live_key, test_key, other_workspace_key)] == [True, True, False]
    assert [can_see(test_key, key) for key in (live_key, test_key, other_workspace_key)] == [False, True, False]
    assert [can_see(operator, key) for key in (live_key, test_key, other_workspace_key)] == [True, True, True]


NAMES = ["".join(letters) for length in range(4) for letters in product("ab/-]", repeat=length)]
_pieces = st.sampled_from(["a", "b", "/", "-", "*", "?", "[ab]", "[!a]", "[", "]", "**"])
globs = st.lists(_pieces, max_size=4).map("".join)


@given(glob=globs, other_globs=st.lists(globs, max_size=1), prefix_length=st.integers(0, 4), suffix=globs)
@settings(max_examples=500)
@example(glob="a*", other_globs=[], prefix_length=1, suffix="[")
@example(glob="[ab]*", other_globs=[], prefix_length=5, suffix="")
@example(glob="a?", other_globs=[], prefix_length=1, suffix="*")
def test_a_delegable_glob_matches_no_more_than_the_creators_globs(
    glob: str, other_globs: list[str], prefix_length: int, suffix: str
) -> None:
    """Compared on every name of up to three characters; in doubt the glob is rejected."""
    requested = glob[:prefix_length] + suffix
    if not may_delegate(
        make_key(restrictions=KeyRestrictions(tools=(glob, *other_globs))), make_key(restrictions=KeyRestrictions(tools=(requested,)))
    ):
        return

    assert [
        name for name in NAMES if fnmatchcase(name, requested) and not any(fnmatchcase(name, glob) for glob in (glob, *other_globs))
    ] == []


_v4 = st.tuples(st.integers(0, 15), st.integers(26, 32)).map(lambda pair: f"10.0.0.{pair[0]}/{pair[1]}")
_v6 = st.tuples(st.integers(0, 15), st.integers(122, 128)).map(lambda pair: f"2001:db8::{pair[0]:x}/{pair[1]}")
ranges = st.lists(_v4 | _v6, max_size=3)


@given(outer=ranges, inner=ranges)
@settings(max_examples=300)
def test_covered_ranges_contain_no_other_address(outer: list[str], inner: list[str]) -> None:
    """For two lists of addresses."""
    addresses = [str(ipaddress.ip_address(base) + last) for base in ("10.0.0.0", "2001:db8::") for last in range(64)]
    if not covers_all(parse_networks(outer), parse_networks(inner)):
        return

    assert [
        address for address in addresses if contains(parse_networks(inner), address) and not contains(parse_networks(outer), address)
    ] == []
