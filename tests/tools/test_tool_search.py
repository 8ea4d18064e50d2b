"""Tool search by meaning and by word, through the whole application and by its scoring functions."""

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
from rookery.tools.discovery.tool_search import ToolDocument, build_tool_document, score_by_words
from rookery.tools.models import BuiltinTarget, Server, ServerFeatures
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.tools.makers import make_odd_entry

pytestmark = pytest.mark.embedded_store  # a search runs no query that depends on the dialect

SEARCH = "/api/v1/mcp/tools/search"
WORDS = st.text(alphabet="abcxyz_ -A1é", max_size=40)


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with the memory, a server of many small tools, and one that cannot be reached."""
    servers = {"odd": make_odd_entry(tagline="Misbehaves"), "gone": {"command": "no-such-program"}, "off": make_odd_entry(enabled=False)}
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        for server in ("odd", "brain"):

            async def count_tools(server: str = server) -> int:
                return int((await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json()["count"])

            await eventually(count_tools)
        yield instance


async def search(key: Caller, query: str, **parameters: object) -> list[str]:
    """Search for tools; return the results as server/tool."""
    response = await key.http.get(SEARCH, params={"q": query, **{name: str(value) for name, value in parameters.items()}})
    assert response.status_code == 200, response.text
    return [f"{tool['server']}/{tool['name']}" for tool in response.json()["tools"]]


async def test_a_description_in_other_words_finds_the_tool(instance: Instance) -> None:
    """A search by meaning finds a tool without a word in common."""
    for query, tool in [
        ("keep a fact for the next time", "brain/remember"),
        ("find memories that mean the same as a question", "brain/recall"),
        ("delete a memory for good", "brain/forget"),
        ("repeat my words back to me", "odd/echo"),
    ]:

        async def is_found(query: str = query, tool: str = tool) -> bool:  # once the embedder is loaded
            return tool in (await search(instance.admin, query))[:3]

        assert await eventually(is_found), query


async def test_a_tools_own_name_finds_it_first(instance: Instance) -> None:
    """The name is found in any of its spellings."""
    for name in ("odd/echo", "odd__echo", "ECHO", " echo "):
        body = (await instance.admin.http.get(SEARCH, params={"q": name})).json()

        first = body["tools"][0]
        assert (first["server"], first["name"], first["score"]) == ("odd", "echo", 1.0), name
        assert {"description", "inputSchema", "annotations"} <= set(first)
        assert body["count"] == len(body["tools"])


async def test_without_the_embedder_words_still_find(instance: Instance) -> None:
    """Without the embedder a search uses words only."""
    await instance.rookery.engines.embedder.close()

    assert (await search(instance.admin, "memories by meaning or words", server="brain"))[0] in {"brain/recall", "brain/search"}
    assert (await search(instance.admin, "crash the server"))[0] in {"odd/crash", "odd/crash_once"}


async def test_a_search_finds_only_tools_that_the_key_may_use(instance: Instance) -> None:
    """A tool that a key may not list is not found by any search."""
    no_memory = await instance.api_key("mcp:read")
    one_tool = await instance.api_key("*", restrictions=KeyRestrictions(tools=("odd/echo",)))
    one_server = await instance.api_key("*", restrictions=KeyRestrictions(servers=frozenset({"brain"})))

    assert not any(tool.startswith("brain/") for tool in await search(no_memory, "remember", limit=50))
    assert await search(one_tool, "echo", limit=50) == ["odd/echo"]
    assert {tool.partition("/")[0] for tool in await search(one_server, "echo memory", limit=50)} == {"brain"}
    assert "off/echo" not in await search(instance.admin, "echo", limit=50)
    assert (await (await instance.api_key("brain:read")).get(f"{SEARCH}?q=x")).json()["required_scope"] == "mcp:read"


async def test_a_search_can_be_limited_to_one_server_and_a_number_of_tools(instance: Instance) -> None:
    """`server` and `limit`; an unknown, forbidden or disabled server is an error."""
    restricted = await instance.api_key("*", restrictions=KeyRestrictions(servers=frozenset({"brain"})))

    assert all(tool.startswith("odd/") for tool in await search(instance.admin, "remember", server="odd", limit=50))
    assert len(await search(instance.admin, "server", limit=2)) == 2
    for key, query, status, code in [
        (instance.admin, "q=x&server=none", 404, "server_not_found"),
        (restricted, "q=x&server=odd", 403, "permission_denied"),
        (instance.admin, "q=x&server=off", 403, "disabled"),
        (instance.admin, "", 422, "validation_error"),
        (instance.admin, "q=", 422, "validation_error"),
        (instance.admin, "q=x&limit=51", 422, "validation_error"),
        (instance.admin, "q=x&limit=0", 422, "validation_error"),
    ]:
        response = await key.get(f"{SEARCH}?{query}")
        assert (response.status_code, response.json()["error"]) == (status, code), query


async def test_a_removed_tool_is_no_longer_found(instance: Instance, settings: Settings) -> None:
    """An edit of the file also applies to indexed tools."""
    assert "odd/echo" in await search(instance.admin, "echo")

    settings.servers_file.write_text(json.dumps({"mcpServers": {"odd": make_odd_entry(tools={"deny": ["echo"]})}}))

    async def is_gone() -> bool:
        return "odd/echo" not in await search(instance.admin, "echo", limit=50)

    assert await eventually(is_gone)


def make_document(name: str, description: str = "") -> ToolDocument:
    """Return the search document of a tool."""
    server = Server(id="s", name="s", target=BuiltinTarget())
    return build_tool_document(server, {"name": name, "description": description, "inputSchema": {"type": "object"}})


@given(query=WORDS, tools=st.lists(st.tuples(WORDS, WORDS), max_size=12), order=st.randoms())
def test_word_scores_are_bounded_and_independent_of_order(query: str, tools: list[tuple[str, str]], order: object) -> None:
    """0 to 1 for any words; the catalogue's order has no influence."""
    documents = [make_document(*tool) for tool in tools]
    scores = score_by_words(query, documents)

    assert all(0 <= score <= 1 for score in scores)
    assert score_by_words(query, documents[::-1]) == scores[::-1]
    assert score_by_words(query, [replace(document) for document in documents]) == scores


def test_names_are_split_into_words() -> None:
    """snake_case, camelCase and digits separate words."""
    documents = [make_document("getCurrentTime2"), make_document("list_open_issues"), make_document("HTTPServerStart")]

    for query, expected in [("current time", 0), ("open issue", 1), ("start a http server", 2)]:
        scores = score_by_words(query, documents)
        assert max(range(3), key=lambda position: scores[position]) == expected, (query, scores)


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    """If two words match, the one in fewer tools decides."""
    documents = [make_document(f"list_{name}") for name in ("files", "branches", "events")] + [make_document("invoice_total")]

    scores = score_by_words("list invoice", documents)

    assert scores[3] == max(scores)


def test_a_tool_of_any_form_has_a_document() -> None:
    """Tool definitions may have any form; none may break a search."""
    server = Server(id="s", name="s", target=BuiltinTarget())
    definitions: list[dict[str, object]] = [
        {},
        {"name": 7, "description": None, "inputSchema": []},
        {"name": "a", "inputSchema": {"properties": {"b": 3, "c": {"description": 5}}}},
        {"name": "x" * 128, "description": "y " * 100_000, "annotations": "none", "title": {}},
    ]

    documents = [build_tool_document(server, definition) for definition in definitions]

    assert len(score_by_words("x y a b", documents)) == len(definitions)
    assert max(len(document.embedded_text) for document in documents) < 1000


def test_a_tool_without_a_name_is_not_indexed() -> None:
    """It cannot be called, and a search among all tools must not fail on it."""
    index = index_by_name(ServerFeatures(tools=({"name": ""}, {"description": "nameless"}, {"name": "echo"})), {})

    assert list(index) == ["echo"]
