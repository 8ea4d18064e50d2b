"""Names of tools, prompts and resources at /mcp."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from rookery.tools.gateway_names import find_original_name, map_gateway_names, split_gateway_name, to_gateway_name

SERVERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", fullmatch=True)
LIMITS = st.integers(40, 64)
NAMES = st.lists(st.one_of(st.text(min_size=1, max_size=128), st.from_regex(r"[a-z_.]{1,8}", fullmatch=True)), max_size=20)


def test_a_gateway_name_joins_the_server_and_the_tool() -> None:
    """Other characters become `_`; over 50 are cut to 43, `_` and 6 of the digest."""
    long = to_gateway_name("time", "x" * 100)

    assert to_gateway_name("time", "get_current_time") == "time__get_current_time"
    assert to_gateway_name("time", "a.b/c") == "time__a_b_c"
    assert re.fullmatch(r"time__x{37}_[0-9a-f]{6}", long)
    assert len("mcp__rookery__" + long) == 64


@given(SERVERS, NAMES, LIMITS)
@example("a", ["a.b", "a_b", "a/b"], 50)
def test_gateway_names_fit_their_limit_and_are_unique(server: str, names: list[str], limit: int) -> None:
    """Only [A-Za-z0-9_-], and each maps to one tool."""
    mapping = map_gateway_names(server, names, limit)

    assert list(mapping.values()) == list(dict.fromkeys(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", gateway_name) and len(gateway_name) <= limit for gateway_name in mapping)


def test_many_tools_of_a_server_with_a_long_id_keep_names_of_their_own() -> None:
    """A name that has no room for more than the id and six characters of the digest gets a longer digest if that is taken."""
    names = [f"tool_{number}" for number in range(5000)]

    mapping = map_gateway_names("s" * 64, names)

    longest_digest = max(mapping, key=lambda gateway_name: len(gateway_name.lstrip("s")))
    assert len(mapping) == len(names)
    assert find_original_name("s" * 64, names, longest_digest) == mapping[longest_digest]


@given(SERVERS, NAMES, LIMITS, LIMITS)
@example("a", ["x" * 100, "a.b", "a_b"], 50, 64)
def test_a_name_of_another_limit_still_resolves(server: str, names: list[str], limit: int, former_limit: int) -> None:
    """Clients keep names, for example in permissions: those from before the limit was changed stay valid."""
    former_names = map_gateway_names(server, names, former_limit)

    assert all(find_original_name(server, names, former, limit) == name for former, name in former_names.items())
    assert all(find_original_name("another", names, former, limit) is None for former in former_names if former[0] != "a")


@given(SERVERS, st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True))
def test_a_plain_name_can_be_split_without_a_list(server: str, name: str) -> None:
    """Ids have no `_`, so the first `__` ends them, unless the name was cut."""
    gateway_name = to_gateway_name(server, name)
    if gateway_name == f"{server}__{name}":
        assert split_gateway_name(gateway_name) == (server, name)
