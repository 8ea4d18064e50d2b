"""Words: taking texts and queries apart, stems, stop words, highlighting (D-44, D-49). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from html import escape

from rookery.kernel.words import STOP_WORDS, stem
from rookery.memory.models import Words

MAX_WORDS = 64
"""So many different words of a question count; more make it slower, not better."""

FRAGMENT = 320
"""About so many characters of a long content are shown around what was found."""

_LEAD = 60
_WORD = re.compile(r"[^\W_]+")
_PIECE = re.compile(r'(?P<minus>(?<![^\s])-)?(?:"(?P<phrase>[^"]*)"|(?P<plain>[^\s"]+))')


def stems(text: str) -> list[str]:
    """Return the stems of the words of *text*, in order."""
    return [stem(word) for word in _WORD.findall(text)]


def asked(question: str) -> Words:
    """Return the words of a question in plain language; nothing in it is syntax (D-42)."""
    return Words(any_of=_telling(_WORD.findall(question)), is_question=True)


def parsed(query: str) -> Words:
    """Return a search query: "a phrase", -without, and words (D-49); what has no letter or digit says nothing."""
    plain, phrases, without = list[str](), list[str](), list[str]()
    for piece in _PIECE.finditer(query):
        phrase = piece["phrase"]
        words = _WORD.findall(phrase if phrase is not None else piece["plain"])
        if not words:
            continue
        # Two hyphens are no minus: --force is the name of an option.
        is_without = piece["minus"] is not None and (phrase is not None or not piece["plain"].startswith("-"))
        if is_without:
            without.append(" ".join(words))
        elif phrase is not None:
            phrases.append(" ".join(words))
        else:
            plain.extend(words)
    return Words(any_of=_telling(plain), phrases=tuple(dict.fromkeys(phrases)), none_of=tuple(dict.fromkeys(without)))


def of_keywords(keywords: Iterable[str]) -> Words:
    """Return the words of *keywords*, any of which may be found."""
    return Words(any_of=_distinct([word for keyword in keywords for word in _WORD.findall(keyword)]))


def found(keywords: Sequence[str], *texts: str) -> tuple[str, ...]:
    """Return those of *keywords* whose words stand side by side in one of *texts*, by their stems (D-44)."""
    there = [stems(text) for text in texts]
    present = {each for within in there for each in within}
    return tuple(keyword for keyword in keywords if _is_in(_parts(keyword), present, there))


def highlighted(content: str, words: Words) -> str:
    """Return the part of *content* where *words* are first found, as HTML: they in <mark>, all else escaped (D-49)."""
    tokens = [(match.start(), match.end(), stem(match.group())) for match in _WORD.finditer(content)]
    spans = _marked(tokens, words)
    start, end = _fragment(content, spans[0][0] if spans else 0)
    parts = ["…"] if start > 0 else []
    position = start
    for left, right in spans:
        if left < start or right > end:
            continue
        parts += [escape(content[position:left]), "<mark>", escape(content[left:right]), "</mark>"]
        position = right
    parts.append(escape(content[position:end]))
    if end < len(content):
        parts.append("…")
    return "".join(parts)


def _telling(words: Sequence[str]) -> tuple[str, ...]:
    """Return *words* without stop words, unless nothing else was said."""
    return _distinct([word for word in words if word.casefold() not in STOP_WORDS] or words)


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.casefold() for word in words))[:MAX_WORDS]


@lru_cache(maxsize=4096)
def _parts(keyword: str) -> tuple[str, ...]:
    return tuple(stems(keyword))


def _is_in(parts: Sequence[str], present: AbstractSet[str], there: Sequence[Sequence[str]]) -> bool:
    if not parts or any(part not in present for part in parts):
        return False
    return len(parts) == 1 or any(_starts(within, parts) for within in there)


def _starts(within: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return where *parts* stand side by side in *within*."""
    first, length = parts[0], len(parts)
    return [at for at, each in enumerate(within) if each == first and list(within[at : at + length]) == list(parts)]


def _marked(tokens: Sequence[tuple[int, int, str]], words: Words) -> list[tuple[int, int]]:
    """Return where *words* stand in the content, in order, without overlaps."""
    wanted = {stem(word) for word in words.any_of}
    chosen = {at for at, token in enumerate(tokens) if token[2] in wanted}
    all_stems = [token[2] for token in tokens]
    for phrase in words.phrases:
        parts = stems(phrase)
        for at in _starts(all_stems, parts):
            chosen.update(range(at, at + len(parts)))
    return [tokens[at][:2] for at in sorted(chosen)]


def _fragment(content: str, first: int) -> tuple[int, int]:
    """Return where a fragment with position *first* begins and ends, at spaces where there are any near."""
    if len(content) <= FRAGMENT:
        return 0, len(content)
    start = max(0, min(first - _LEAD, len(content) - FRAGMENT))
    if start > 0:
        space = content.find(" ", start, max(start, first))
        start = space + 1 if space >= 0 else start
    end = min(len(content), start + FRAGMENT)
    if end < len(content):
        space = content.rfind(" ", first + 1, end)
        end = space if space > start else end
    return start, end
