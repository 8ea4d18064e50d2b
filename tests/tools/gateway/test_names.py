"""Names of tools, prompts and resources at /mcp."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from rookery.tools.gateway_names import map_gateway_names, split_gateway_name, to_gateway_name

SERVERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", fullmatch=True)
NAMES = st.lists(st.one_of(st.text(min_size=1, max_size=128), st.from_regex(r"[a-z_.]{1,8}", fullmatch=True)), max_size=20)


def test_a_gateway_name_joins_the_server_and_the_tool() -> None:
    """D-30: other characters become `_`; over 64 are cut to 57, `_` and 6 of the digest."""
    long = to_gateway_name("time", "x" * 100)

    assert to_gateway_name("time", "get_current_time") == "time__get_current_time"
    assert to_gateway_name("time", "a.b/c") == "time__a_b_c"
    assert re.fullmatch(r"time__x{51}_[0-9a-f]{6}", long)
    assert len(long) == 64


@given(SERVERS, NAMES)
@example("a", ["a.b", "a_b", "a/b"])
def test_gateway_names_are_valid_for_every_model_api_and_unique(server: str, names: list[str]) -> None:
    """D-30: at most 64 of [A-Za-z0-9_-], and each maps to one tool."""
    mapping = map_gateway_names(server, names)

    assert list(mapping.values()) == list(dict.fromkeys(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", gateway_name) for gateway_name in mapping)


@given(SERVERS, st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True))
def test_a_plain_name_can_be_split_without_a_list(server: str, name: str) -> None:
    """D-30: ids have no `_`, so the first `__` ends them, unless the name was cut."""
    gateway_name = to_gateway_name(server, name)
    if gateway_name == f"{server}__{name}":
        assert split_gateway_name(gateway_name) == (server, name)
