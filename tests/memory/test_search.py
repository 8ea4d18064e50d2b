from __future__ import annotations

from dataclasses import replace

from rookery.access.models import Caller
from rookery.kernel.pages import PageSlice
from rookery.memory.models import MemoryFilter, MemoryScope, SearchResult
from tests.memory.makers import MemoryRig, make_agent, make_caller


async def _find(
    rig: MemoryRig, query: str, by: Caller | None = None, *, limit: int = 20, offset: int = 0, **filters: object
) -> SearchResult:
    return await rig.services.search.find(by or make_caller(), query, replace(MemoryFilter(), **filters), page=PageSlice(limit, offset))


def _contents(result: SearchResult) -> list[str]:
    return [hit.memory.content for hit in result.hits]


async def test_search_supports_words_phrases_and_exclusions(rig: MemoryRig) -> None:
    """Quotes mark a phrase, and a leading minus excludes a word."""
    for content in ("deploy on tuesday", "on tuesday we do not deploy", "deploying herons"):
        await rig.remember(content)
    await rig.run_jobs()

    assert sorted(_contents(await _find(rig, "deploys"))) == ["deploy on tuesday", "deploying herons", "on tuesday we do not deploy"]
    assert _contents(await _find(rig, '"deploy on tuesday"')) == ["deploy on tuesday"]
    assert sorted(_contents(await _find(rig, "deploy -heron"))) == ["deploy on tuesday", "on tuesday we do not deploy"]


async def test_a_name_of_several_parts_is_one_term(rig: MemoryRig) -> None:
    """Error codes and file names match as a whole, not by their parts."""
    identifier_memory = await rig.remember("It failed with E_CONN_RESET in main.py.")
    await rig.remember("Reset the main switch of the conn e.")

    results = [(await _find(rig, query)) for query in ("E_CONN_RESET", "main.py", "nothing e_conn_reset")]

    assert [([hit.memory.id for hit in result.hits], result.total) for result in results] == [([identifier_memory.id], 1)] * 3


async def test_a_hit_has_its_matching_words_highlighted(rig: MemoryRig) -> None:
    """The highlight comes from the record, and its other text is escaped."""
    memory = await rig.remember("<b>deploying</b>")
    await rig.run_jobs()

    result = await _find(rig, "deploy")
    assert (result.hits[0].memory.id, result.hits[0].highlight) == (memory.id, "&lt;b&gt;<mark>deploying</mark>&lt;/b&gt;")
    assert result.hits[0].score > 0
    assert result.took_ms > 0


async def test_total_counts_all_and_pages_do_not_overlap(rig: MemoryRig) -> None:
    """`total` counts every hit, and pages by limit and offset do not overlap."""
    for number in range(7):
        await rig.remember(f"heron {number}")
    await rig.run_jobs()

    pages = [await _find(rig, "heron", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [page.total for page in pages] == [7, 7, 7, 7]
    assert [len(page.hits) for page in pages] == [3, 3, 1, 0]
    assert len({hit.memory.id for page in pages for hit in page.hits}) == 7


async def test_search_returns_only_live_and_visible_memories(rig: MemoryRig) -> None:
    """Deleted memories of an outdated index are dropped, and the page is filled with the next hits."""
    stored = [await rig.remember(f"heron {number}") for number in range(8)]
    await rig.remember("heron elsewhere", org="zoo")
    await rig.remember("heron foreign", make_caller(workspace_id=2))
    await rig.remember("heron secret", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()
    for memory in stored[:4]:
        await rig.services.records.delete(make_caller(), memory.id)

    result = await _find(rig, "heron", limit=4, org="acme")
    assert sorted(_contents(result)) == ["heron 4", "heron 5", "heron 6", "heron 7"]
    assert result.total == 4


async def test_a_query_without_search_terms_finds_nothing(rig: MemoryRig) -> None:
    """Query text is data, not query syntax."""
    await rig.remember("heron OR roof")
    await rig.run_jobs()

    for query in ("!!!", "-heron", '""', "NEAR(", "content:*", "'; DROP TABLE memories; --"):
        assert (await _find(rig, query)).hits == ()
    assert _contents(await _find(rig, "heron AND (roof*")) == ["heron OR roof"]
