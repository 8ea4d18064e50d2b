"""Pages of lists in memory, and cursors."""

from __future__ import annotations

import pytest

from rookery.kernel.pages import (
    Cursor,
    InvalidCursor,
    ListPage,
    PageSlice,
    collect_items,
    decode_cursor,
    digest_list,
    encode_cursor,
    slice_anchored,
    slice_sorted,
)

_DIGEST = digest_list("birds", {"q": "heron"})


@pytest.mark.parametrize("position", [("a",), (1, "ü€"), (-(2**63), 1.5, "x" * 300), (0.1 + 0.2,)])
def test_a_cursor_is_read_back(position: tuple[str | int | float, ...]) -> None:
    """All types of values survive, in characters that need no escape in a URL."""
    text = encode_cursor(_DIGEST, Cursor(7, position))

    assert decode_cursor(_DIGEST, text) == Cursor(7, position)
    assert text.replace("-", "").replace("_", "").isalnum()
    assert len(encode_cursor(_DIGEST, Cursor(2, (1_795_920_299_954_762, "01a22531-07b2-7c60-9721-0f5f5dd429f0")))) <= 100


@pytest.mark.parametrize(("name", "filters"), [("fish", {"q": "heron"}), ("birds", {"q": "rook"}), ("birds", {})])
def test_a_cursor_belongs_to_a_list_and_its_filters(name: str, filters: dict[str, object]) -> None:
    """Another list or other filters are named in the error."""
    with pytest.raises(InvalidCursor, match="belongs to another list"):
        decode_cursor(digest_list(name, filters), encode_cursor(_DIGEST, Cursor(2, ("a",))))


def test_a_sorted_list_continues_after_a_value_that_was_deleted() -> None:
    """Both directions; the value need not exist any longer."""
    names = ["a", "c", "e", "g"]

    assert slice_sorted(names, PageSlice(2, after=("b",)), lambda name: (name,)).items == ["c", "e"]
    assert slice_sorted(names, PageSlice(2, 1, ("c",)), lambda name: (name,)).items == ["g"]
    assert slice_sorted(names[::-1], PageSlice(2, after=("f",)), lambda name: (name,), descending=True) == ListPage(
        ["e", "c"], 4, [("e",), ("c",)], True
    )
    assert slice_sorted([], PageSlice(2, after=("f",)), lambda name: (str(name),)) == ListPage([], 0, [], False)
    with pytest.raises(InvalidCursor):
        slice_sorted(names, PageSlice(2, after=(1,)), lambda name: (name,))


def test_a_list_without_values_continues_at_the_next_entry_wherever_it_is() -> None:
    """Else after the last entry, else at the same number."""
    end = slice_anchored(list("abcdefg"), PageSlice(3), str).end

    assert end == ("d", "c", 3)
    assert slice_anchored(list("defg"), PageSlice(2, after=end), str).items == ["d", "e"]
    assert slice_anchored(list("xabcdefg"), PageSlice(2, after=end), str).items == ["d", "e"]
    assert slice_anchored(list("xcefg"), PageSlice(2, after=end), str).items == ["e", "f"]
    assert slice_anchored(list("abxefg"), PageSlice(2, after=end), str).items == ["e", "f"]
    assert slice_anchored(list("ab"), PageSlice(2, after=end), str) == ListPage([], 2, [], False)


@pytest.mark.parametrize("limit", [None, 0, 1, 4, 5, 7, 20])
async def test_items_are_collected_up_to_a_limit(limit: int | None) -> None:
    """No page is larger than what is missing."""
    sizes = list[int]()

    async def fetch(*, page: PageSlice) -> ListPage[int]:
        sizes.append(page.limit)
        return slice_sorted(range(7), page, lambda number: (number,))

    assert await collect_items(fetch, limit=limit, page_size=2) == list(range(7))[:limit]
    assert sum(sizes) <= (8 if limit is None else limit + 1)
