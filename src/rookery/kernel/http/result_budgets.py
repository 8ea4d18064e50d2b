"""
Budgets of tool results, so that no answer is larger than a model's context window allows.

A result that does not fit keeps the beginning of its lists. Long texts are cut, all to the same length, and marked with `…`; nested
lists and objects lose their last entries; the last items are left out. `truncated` marks a shortened item, and `left_out` is the number
of missing items. The first item is always in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import orjson

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.money import CHARS_PER_TOKEN
from rookery.kernel.schema import is_whole

T = TypeVar("T")

BUDGET_ARGUMENT = "max_tokens"
DEFAULT_MAX_TOKENS = 6_000
NEXT_CURSOR_FIELD = "next_cursor"

_ELLIPSIS = "…"
_MIN_TEXT_CHARS, _LAST_TEXT_CHARS = 200, 64
"""The least that is left of a text while items are shortened, and if a single one does not fit. Shorter texts, such as ids, stay whole."""
_ENTRY_LIMITS = (None, 8, 2, 0)
"""Entries of nested lists and objects, from most to fewest."""
_TEXT_STEP_CHARS = 32
_MAX_ENVELOPE_CHARS = 80
"""Characters of the result around the text: `{"content":[{"type":"text","text":…}],"isError":false}`."""
_ENVELOPE_SHARE = 20
_IDENTITY_FIELDS = ("id", "content", "title", "name", "status", "truncated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBudget:
    """
    The budget of a tool's results.

    Attributes:
        lists: The lists of items in the output, each as a path such as `boot.tasks`.
        min_tokens: The smallest budget. It has room for the shortest form of the output.
    """

    lists: Sequence[str]
    min_tokens: int = 50

    def read_tokens(self, arguments: Mapping[str, object]) -> int | None:
        """
        Return the budget of a call. None: the call names none.

        Raises:
            ValidationFailed: It is not an integer, or too small.
        """
        value = arguments.get(BUDGET_ARGUMENT)
        if value is None:
            return None
        if is_whole(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < self.min_tokens:
            raise ValidationFailed({BUDGET_ARGUMENT: [f"must be an integer of at least {self.min_tokens}"]})
        return value

    def fit(self, output: Mapping[str, object], max_tokens: int, *, cursors: Sequence[str] = ()) -> Mapping[str, object]:
        """
        Return *output*, or a shorter form of it that has at most four characters per token wherever a client shows it.

        Args:
            cursors: The cursors after each of the items. If some are left out, `next_cursor` is the one after the last that is not.
        """
        max_chars = max_tokens * CHARS_PER_TOKEN
        max_chars -= min(_MAX_ENVELOPE_CHARS, max_chars // _ENVELOPE_SHARE)
        if measure(output) <= max_chars:
            return output
        shortener = _Shortener([path.split(".") for path in self.lists], output)
        for max_entries in _ENTRY_LIMITS:
            shortened = shortener.cut_texts(max_entries, max_chars)
            if shortened is not None:
                return shortened
        if cursors:
            shortener = _Shortener(shortener.paths, {**output, NEXT_CURSOR_FIELD: max(cursors, key=len)})
        fields = dict(shortener.leave_out(max_chars))
        fields.pop(NEXT_CURSOR_FIELD, None)  # it would skip the items that are left out
        item_count = len(_get_list(fields, shortener.paths[0]))
        with_cursor = {**fields, **({NEXT_CURSOR_FIELD: cursors[item_count - 1]} if cursors else {})}
        return with_cursor if measure(with_cursor) <= max_chars else fields


def measure(value: object) -> int:
    """Return the number of characters of *value* as a client receives it: as JSON in a JSON string, the longer of both forms."""
    return len(orjson.dumps(orjson.dumps(value).decode()).decode())


class _Shortener:
    """Builds shorter forms of one output."""

    def __init__(self, paths: Sequence[Sequence[str]], output: Mapping[str, object]) -> None:
        self.paths = paths
        self._output = output
        self._lengths = [len(_get_list(output, path)) for path in paths]

    def cut_texts(self, max_entries: int | None, max_chars: int) -> Mapping[str, object] | None:
        """Return the form with all items and the longest texts that fit. None if even short ones do not."""
        count = sum(self._lengths)
        shortest = self._build(count, _MIN_TEXT_CHARS, max_entries)
        if measure(shortest) > max_chars:
            return None
        low, high = _MIN_TEXT_CHARS, max_chars
        while high - low > _TEXT_STEP_CHARS:
            middle = (low + high) // 2
            candidate = self._build(count, middle, max_entries)
            if measure(candidate) <= max_chars:
                low, shortest = middle, candidate
            else:
                high = middle
        return shortest

    def leave_out(self, max_chars: int) -> Mapping[str, object]:
        """Return the form with as many items as fit, in which texts are short and nothing is nested."""
        low, high = 1, sum(self._lengths)
        while low < high:
            middle = (low + high + 1) // 2
            if measure(self._build(middle, _MIN_TEXT_CHARS, 0)) <= max_chars:
                low = middle
            else:
                high = middle - 1
        shortened = self._build(low, _MIN_TEXT_CHARS, 0)
        if measure(shortened) <= max_chars:
            return shortened
        shortened = self._build(1, _LAST_TEXT_CHARS, 0)
        return shortened if measure(shortened) <= max_chars else _keep_identities(shortened, self.paths)

    def _build(self, count: int, text_chars: int, max_entries: int | None) -> Mapping[str, object]:
        shares = _share(self._lengths, count)
        cutter = _Cutter(text_chars, max_entries)
        fields = cast("dict[str, object]", self._build_object(self._output, (), shares, cutter))
        if cutter.has_cut:
            fields["truncated"] = True
        left_out = sum(self._lengths) - sum(shares)
        if left_out:
            fields["left_out"] = left_out
        return fields

    def _build_object(
        self, value: Mapping[str, object], path: tuple[str, ...], shares: Sequence[int], cutter: _Cutter
    ) -> Mapping[str, object]:
        """Return an object on the way to the lists. Objects beside the lists lose no entries at their top, but nested ones do."""
        fields = dict[str, object]()
        for name, field in value.items():
            at = [*path, name]
            if at in [list(own) for own in self.paths]:
                share = shares[[list(own) for own in self.paths].index(at)]
                fields[name] = [_cut_item(item, cutter) for item in cast("Sequence[object]", field or ())[:share]]
            elif any(list(own[: len(at)]) == at for own in self.paths) and isinstance(field, Mapping):
                fields[name] = self._build_object(cast("Mapping[str, object]", field), tuple(at), shares, cutter)
            elif name == NEXT_CURSOR_FIELD:
                fields[name] = field
            else:
                fields[name] = _cut_item(field, cutter)
        return fields


@dataclass(slots=True)
class _Cutter:
    """Cuts texts, and lists and objects to their first entries. Nested objects without entries are left out."""

    text_chars: int
    max_entries: int | None
    has_cut: bool = False

    def cut(self, value: object) -> object:
        if isinstance(value, str):
            return self._cut_text(value)
        if isinstance(value, Mapping):
            entries = list(cast("Mapping[str, object]", value).items())
            return {name: self.cut(entry) for name, entry in self._cut_entries(entries)}
        if isinstance(value, Sequence):
            return [self.cut(entry) for entry in self._cut_entries(cast("Sequence[object]", value))]
        return value

    def _cut_text(self, text: str) -> str:
        if len(text) <= max(self.text_chars, _LAST_TEXT_CHARS):
            return text
        self.has_cut = True
        return text[: self.text_chars - 1] + _ELLIPSIS

    def _cut_entries(self, entries: Sequence[T]) -> Sequence[T]:
        if self.max_entries is None or len(entries) <= self.max_entries:
            return entries
        self.has_cut = True
        return entries[: self.max_entries]


def _cut_item(item: object, cutter: _Cutter) -> object:
    """Return *item* with all its fields, cut, and with `truncated` if it is an object that was cut."""
    if not isinstance(item, Mapping):
        return cutter.cut(item)
    own = _Cutter(cutter.text_chars, cutter.max_entries)
    fields = {name: own.cut(value) for name, value in cast("Mapping[str, object]", item).items()}
    if not own.has_cut:
        return fields
    return {**{name: value for name, value in fields.items() if value not in ([], {})}, "truncated": True}


def _keep_identities(output: Mapping[str, object], paths: Sequence[Sequence[str]]) -> Mapping[str, object]:
    """Return *output* with only the fields that identify its objects."""

    def reduce(value: object, path: tuple[str, ...]) -> object:
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            is_on_way = any(tuple(own[: len(path)]) == path for own in paths)
            return {
                name: reduce(field, (*path, name))
                for name, field in fields.items()
                if name in _IDENTITY_FIELDS or (is_on_way and (name == "left_out" or not isinstance(field, (str, int, float))))
            }
        if isinstance(value, list):
            items = cast("list[object]", value) if any(tuple(own) == path for own in paths) else []
            return [reduce(item, (*path, "")) for item in items]
        return value

    return cast("Mapping[str, object]", reduce(output, ()))


def _get_list(output: Mapping[str, object], path: Sequence[str]) -> Sequence[object]:
    value: object = output
    for name in path:
        value = cast("Mapping[str, object]", value).get(name) if isinstance(value, dict) else None
    return cast("list[object]", value) if isinstance(value, list) else ()


def _share(lengths: Sequence[int], count: int) -> Sequence[int]:
    """Return how many of *count* items each list gets: in turn, one at a time, while it has any."""
    shares = [0] * len(lengths)
    for number in _iter_turns(lengths):
        if sum(shares) == count:
            break
        shares[number] += 1
    return shares


def _iter_turns(lengths: Sequence[int]) -> Iterator[int]:
    for turn in range(max(lengths, default=0)):
        yield from (number for number, length in enumerate(lengths) if length > turn)
