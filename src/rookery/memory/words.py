"""Words: taking texts and queries apart, stems, stop words, highlighting (D-44, D-49). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from html import escape

from rookery.kernel.words import STOP_WORDS, Part, is_one, is_unspaced, singles, sought, stem, taken_apart, words_in
from rookery.memory.models import Words

MAX_WORDS = 64
"""So many different words of a question count; more make it slower, not better."""

FRAGMENT = 320
"""About so many characters of a long content are shown around what was found."""

_LEAD = 60
_PIECE = re.compile(r'(?P<minus>(?<![^\s,;])-)?(?:"(?P<phrase>[^"]*)"|(?P<plain>[^\s",;]+))')


def stems(text: str) -> list[str]:
    """Return the stems of the words of *text*, in order."""
    return [stem(part) for word in words_in(text) for part in sought(word)]


def asked(question: str) -> Words:
    """Return the words of a question in plain language; nothing in it is syntax (D-42)."""
    return Words(any_of=_telling([part for word in words_in(question) for part in sought(word)]), is_question=True)


def parsed(query: str) -> Words:
    """
    Return a search query: "a phrase", -without, and words (D-49); what has no letter or digit says nothing.

    What is written in one, such as E_CONN_RESET, main.py or dry-run, is one word: its parts are looked for side by side. So are the
    letters of a short run of Chinese or the like; of a longer one, which is a sentence, each two.
    """
    plain, phrases, without = list[str](), list[str](), list[str]()
    for piece in _PIECE.finditer(query):
        phrase = piece["phrase"]
        named = words_in(phrase if phrase is not None else piece["plain"])
        words = [part for word in named for part in sought(word)]
        if not words:
            continue
        # Two hyphens are no minus: --force is the name of an option.
        is_without = piece["minus"] is not None and (phrase is not None or not piece["plain"].startswith("-"))
        if is_without:
            without.append(" ".join(words))
        elif phrase is not None:
            phrases.append(" ".join(words))
        else:
            plain.extend([" ".join(words)] if all(map(is_one, named)) else words)
    return Words(any_of=_telling(plain), phrases=tuple(dict.fromkeys(phrases)), none_of=tuple(dict.fromkeys(without)))


def of_keywords(keywords: Iterable[str]) -> Words:
    """Return the words of *keywords*, any of which may be found."""
    return Words(any_of=_distinct([part for keyword in keywords for word in words_in(keyword) for part in sought(word)]))


def found(keywords: Sequence[str], *texts: str) -> tuple[str, ...]:
    """Return those of *keywords* whose words stand side by side in one of *texts*, by their stems (D-44)."""
    there = [stems(text) for text in texts]
    present = {each for within in there for each in within}
    return tuple(keyword for keyword in keywords if _is_in(_parts(keyword), present, there) or _is_letter_in(keyword, texts))


def highlighted(content: str, words: Words) -> str:
    """Return the part of *content* where *words* are first found, as HTML: they in <mark>, all else escaped (D-49)."""
    is_letter = any(len(each) == 1 for each in (*words.any_of, *words.phrases))
    spans = _marked(taken_apart(content), singles(content) if is_letter else [], words)
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


def _is_letter_in(keyword: str, texts: Sequence[str]) -> bool:
    return len(keyword) == 1 and is_unspaced(keyword) and any(keyword in text for text in texts)


def _starts(within: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return where *parts* stand side by side in *within*."""
    first, length = parts[0], len(parts)
    return [at for at, each in enumerate(within) if each == first and list(within[at : at + length]) == list(parts)]


def _marked(tokens: Sequence[Part], letters: Sequence[Part], words: Words) -> list[tuple[int, int]]:
    """Return where *words* stand in the content, in order, without overlaps."""
    all_stems = [token.stem for token in tokens]
    present, alone, chosen = set(all_stems), set(words.any_of).union(words.phrases), set[Part]()
    for each in (*words.any_of, *words.phrases):
        wanted = stems(each)
        if wanted and present.issuperset(wanted):
            for at in _starts(all_stems, wanted):
                chosen.update(tokens[at : at + len(wanted)])
    chosen.update(letter for letter in letters if letter.stem in alone)
    spans = list[tuple[int, int]]()
    for start, end, _ in sorted(chosen):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


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
