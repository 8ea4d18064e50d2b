from __future__ import annotations

from dataclasses import replace

from rookery.access.models import Caller
from rookery.memory.models import MemoryFilter, MemoryScope, SearchResult
from tests.memory.makers import MemoryRig, make_agent, make_caller


async def _find(
    rig: MemoryRig, query: str, by: Caller | None = None, *, limit: int = 20, offset: int = 0, **filters: object
) -> SearchResult:
    return await rig.services.search.find(by or make_caller(), query, replace(MemoryFilter(), **filters), limit=limit, offset=offset)


def _contents(searched: SearchResult) -> list[str]:
    return [hit.memory.content for hit in searched.hits]


async def test_search_is_by_words_with_phrases_and_without(rig: MemoryRig) -> None:
    """D-49: a quoted phrase and a leading minus work."""
    for content in ("deploy on tuesday", "on tuesday we do not deploy", "deploying herons"):
        await rig.remember(content)
    await rig.run_jobs()

    assert sorted(_contents(await _find(rig, "deploys"))) == ["deploy on tuesday", "deploying herons", "on tuesday we do not deploy"]
    assert _contents(await _find(rig, '"deploy on tuesday"')) == ["deploy on tuesday"]
    assert sorted(_contents(await _find(rig, "deploy -heron"))) == ["deploy on tuesday", "on tuesday we do not deploy"]


async def test_a_name_of_several_parts_is_found_whole(rig: MemoryRig) -> None:
    """D-49: an error code, a file, a version; its parts alone are something else."""
    whole = await rig.remember("It failed with E_CONN_RESET in main.py.")
    await rig.remember("Reset the main switch of the conn e.")

    found = [(await _find(rig, query)) for query in ("E_CONN_RESET", "main.py", "nothing e_conn_reset")]

    assert [([hit.memory.id for hit in each.hits], each.total) for each in found] == [([whole.id], 1)] * 3


async def test_a_hit_is_the_record_with_its_words_marked(rig: MemoryRig) -> None:
    """D-49: highlight, the rest escaped, from the record."""
    memory = await rig.remember("<b>deploying</b>")
    await rig.run_jobs()

    found = await _find(rig, "deploy")
    assert (found.hits[0].memory.id, found.hits[0].highlight) == (memory.id, "&lt;b&gt;<mark>deploying</mark>&lt;/b&gt;")
    assert found.hits[0].score > 0
    assert found.took_ms > 0


async def test_total_counts_all_and_pages_do_not_overlap(rig: MemoryRig) -> None:
    """`total` counts every hit, and pages by limit and offset do not overlap (D-49)."""
    for number in range(7):
        await rig.remember(f"heron {number}")
    await rig.run_jobs()

    pages = [await _find(rig, "heron", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [each.total for each in pages] == [7, 7, 7, 7]
    assert [len(each.hits) for each in pages] == [3, 3, 1, 0]
    assert len({hit.memory.id for each in pages for hit in each.hits}) == 7


async def test_search_shows_only_what_is_there_and_visible(rig: MemoryRig) -> None:
    """D-43 and D-46: a lagging index shows nothing that is gone; the page is filled from further on."""
    stored = [await rig.remember(f"heron {number}") for number in range(8)]
    await rig.remember("heron elsewhere", org="zoo")
    await rig.remember("heron foreign", make_caller(workspace_id=2))
    await rig.remember("heron secret", make_agent("lee"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()
    for memory in stored[:4]:
        await rig.services.records.delete(make_caller(), memory.id)

    found = await _find(rig, "heron", limit=4, org="acme")
    assert sorted(_contents(found)) == ["heron 4", "heron 5", "heron 6", "heron 7"]
    assert found.total == 4


async def test_a_query_that_says_nothing_finds_nothing(rig: MemoryRig) -> None:
    """D-49: query text is data."""
    await rig.remember("heron OR roof")
    await rig.run_jobs()

    for query in ("!!!", "-heron", '""', "NEAR(", "content:*", "'; DROP TABLE memories; --"):
        assert (await _find(rig, query)).hits == ()
    assert _contents(await _find(rig, "heron AND (roof*")) == ["heron OR roof"]
