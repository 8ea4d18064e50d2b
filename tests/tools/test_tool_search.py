"""Tools found by meaning and by word, through the whole application and by the rules beneath (D-37)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.tools.catalogue_tool import index_by_name
from rookery.tools.discovery.lexical_scoring import ToolDocument, build_tool_document, score_by_words
from rookery.tools.models import BuiltinTarget, Server, ServerFeatures
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.tools.makers import make_odd_entry

SEARCH = "/api/v1/mcp/tools/search"
WORDS = st.text(alphabet="abcxyz_ -A1é", max_size=40)


@pytest.fixture
def database_url() -> str:
    """The embedded store alone: no query of a search is the database's."""
    return "embedded:"


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with the memory, a server of many small tools, and one that cannot be reached."""
    servers = {"odd": make_odd_entry(tagline="Misbehaves"), "gone": {"command": "no-such-program"}, "off": make_odd_entry(enabled=False)}
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        for server in ("odd", "brain"):  # until each has been seen
            assert (await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json()["count"]
        yield instance


async def find(key: Caller, query: str, **more: object) -> list[str]:
    """Return what is found, as server/tool."""
    answer = await key.http.get(SEARCH, params={"q": query, **{name: str(value) for name, value in more.items()}})
    assert answer.status_code == 200, answer.text
    return [f"{tool['server']}/{tool['name']}" for tool in answer.json()["tools"]]


async def test_a_need_in_other_words_finds_the_tool(instance: Instance) -> None:
    """A search by meaning finds a tool without a word in common (D-37)."""
    for need, tool in [
        ("keep a fact for the next time", "brain/remember"),
        ("find memories that mean the same as a question", "brain/recall"),
        ("delete a memory for good", "brain/forget"),
        ("repeat my words back to me", "odd/echo"),
    ]:

        async def is_found(need: str = need, tool: str = tool) -> bool:  # once the embedder is loaded
            return tool in (await find(instance.admin, need))[:3]

        assert await eventually(is_found, within_s=30), need


async def test_a_tools_own_name_finds_it_first(instance: Instance) -> None:
    """D-37: by word; the name in any of its spellings (D-30)."""
    for name in ("odd/echo", "odd__echo", "ECHO", " echo "):
        found = (await instance.admin.http.get(SEARCH, params={"q": name})).json()

        first = found["tools"][0]
        assert (first["server"], first["name"], first["score"]) == ("odd", "echo", 1.0), name
        assert {"description", "inputSchema", "annotations"} <= set(first)
        assert found["count"] == len(found["tools"])


async def test_without_the_embedder_words_still_find(instance: Instance) -> None:
    """D-37: an engine that is gone makes answers poorer, not none."""
    await instance.rookery.embedder.close()

    assert (await find(instance.admin, "memories by meaning or words", server="brain"))[0] in {"brain/recall", "brain/search"}
    assert (await find(instance.admin, "crash the server"))[0] in {"odd/crash", "odd/crash_once"}


async def test_only_what_a_key_may_see_is_found(instance: Instance) -> None:
    """D-37, D-23, D-92: a tool that a key may not list is not found by any search."""
    no_memory = await instance.api_key("mcp:read")
    one_tool = await instance.api_key("*", restrictions=KeyRestrictions(tools=("odd/echo",)))
    one_server = await instance.api_key("*", restrictions=KeyRestrictions(servers=frozenset({"brain"})))

    assert not any(tool.startswith("brain/") for tool in await find(no_memory, "remember", limit=50))
    assert await find(one_tool, "echo", limit=50) == ["odd/echo"]
    assert {tool.partition("/")[0] for tool in await find(one_server, "echo memory", limit=50)} == {"brain"}
    assert "off/echo" not in await find(instance.admin, "echo", limit=50)
    assert (await (await instance.api_key("brain:read")).get(f"{SEARCH}?q=x")).json()["required_scope"] == "mcp:read"


async def test_one_server_and_a_number_of_tools_may_be_asked_for(instance: Instance) -> None:
    """D-37: `server` and `limit`; a server that is not there, is not for the key or is off says so."""
    few = await instance.api_key("*", restrictions=KeyRestrictions(servers=frozenset({"brain"})))

    assert all(tool.startswith("odd/") for tool in await find(instance.admin, "remember", server="odd", limit=50))
    assert len(await find(instance.admin, "server", limit=2)) == 2
    for key, query, status, code in [
        (instance.admin, "q=x&server=none", 404, "server_not_found"),
        (few, "q=x&server=odd", 403, "permission_denied"),
        (instance.admin, "q=x&server=off", 403, "disabled"),
        (instance.admin, "", 422, "validation_error"),
        (instance.admin, "q=", 422, "validation_error"),
        (instance.admin, "q=x&limit=51", 422, "validation_error"),
        (instance.admin, "q=x&limit=0", 422, "validation_error"),
    ]:
        answer = await key.get(f"{SEARCH}?{query}")
        assert (answer.status_code, answer.json()["error"]) == (status, code), query


async def test_a_tool_that_is_taken_away_is_found_no_more(instance: Instance, settings: Settings) -> None:
    """D-37, D-31: an edit of the file acts on what was already learnt."""
    assert "odd/echo" in await find(instance.admin, "echo")

    settings.servers_file.write_text(json.dumps({"mcpServers": {"odd": make_odd_entry(tools={"deny": ["echo"]})}}))

    async def is_gone() -> bool:
        return "odd/echo" not in await find(instance.admin, "echo", limit=50)

    assert await eventually(is_gone)


def a_card(name: str, description: str = "") -> ToolDocument:
    """Return what is compared of a tool."""
    server = Server(id="s", name="s", target=BuiltinTarget())
    return build_tool_document(server, {"name": name, "description": description, "inputSchema": {"type": "object"}})


@given(query=WORDS, tools=st.lists(st.tuples(WORDS, WORDS), max_size=12), order=st.randoms())
def test_scores_of_words_are_bounded_and_belong_to_the_tool(query: str, tools: list[tuple[str, str]], order: object) -> None:
    """D-37: 0 to 1 for any words; the catalogue's order has no influence."""
    cards = [a_card(*tool) for tool in tools]
    scores = score_by_words(query, cards)

    assert all(0 <= score <= 1 for score in scores)
    assert score_by_words(query, cards[::-1]) == scores[::-1]
    assert score_by_words(query, [replace(each) for each in cards]) == scores


def test_names_are_taken_apart_where_words_meet() -> None:
    """D-37: snake_case, camelCase and digits are ways to write words."""
    cards = [a_card("getCurrentTime2"), a_card("list_open_issues"), a_card("HTTPServerStart")]

    for query, right in [("current time", 0), ("open issue", 1), ("start a http server", 2)]:
        scores = score_by_words(query, cards)
        assert max(range(3), key=lambda at: scores[at]) == right, (query, scores)


def test_a_rare_word_says_more_than_a_usual_one() -> None:
    """D-37: of two words found, the one that fewer tools have decides."""
    cards = [a_card(f"list_{name}") for name in ("files", "branches", "events")] + [a_card("invoice_total")]

    scores = score_by_words("list invoice", cards)

    assert scores[3] == max(scores)


def test_a_tool_of_any_form_has_a_card() -> None:
    """D-16, D-37: what a server says of its tools is data of any form; none of it breaks a search."""
    server = Server(id="s", name="s", target=BuiltinTarget())
    odd: list[dict[str, object]] = [
        {},
        {"name": 7, "description": None, "inputSchema": []},
        {"name": "a", "inputSchema": {"properties": {"b": 3, "c": {"description": 5}}}},
        {"name": "x" * 128, "description": "y " * 100_000, "annotations": "none", "title": {}},
    ]

    cards = [build_tool_document(server, each) for each in odd]

    assert len(score_by_words("x y a b", cards)) == len(odd)
    assert max(len(each.embedded_text) for each in cards) < 1000


def test_a_tool_without_a_name_is_in_no_list() -> None:
    """D-37: it cannot be called, and a search among all tools must not fail on it."""
    listed = index_by_name(ServerFeatures(tools=({"name": ""}, {"description": "nameless"}, {"name": "echo"})), {})

    assert list(listed) == ["echo"]
