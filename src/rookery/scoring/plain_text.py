"""The prose of a text: without Markdown, HTML, code and quotations, with the positions of its parts. Pure."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from rookery.kernel.languages import ENGLISH, guess_languages

PlainTextProblem = Literal["empty", "binary", "code", "quoted", "language"]

WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
"""A word: letters and digits, with apostrophes and hyphens inside."""

_DELETED = "\ue000"
"""Stands for a deleted character until the end. A private character, which no text has after `_replace_invalid`."""

_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_QUOTE_LINE = re.compile(r"[ \t]{0,3}>")
_HTML_BLOCK_TAG = re.compile(r"<(/?)(script|style|pre|code|blockquote)\b[^<>]{0,500}>", re.IGNORECASE)
_COMMENT_START, _COMMENT_END = "<!--", "-->"
_HTML_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,500}>|<![a-zA-Z][^<>\n]{0,200}>")
_BLOCK_TAG = re.compile(r"</?(?:p|br|div|li|ul|ol|h[1-6]|tr|table|section|article|hr)\b", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,300}\]\([^()\s]{0,1000}\)")
_LINK = re.compile(r"\[([^\[\]\n]{1,300})\](\((?:[^()\s]{0,1000})(?:\s\"[^\"\n]{0,200}\")?\))")
_URL = re.compile(r"\b(?:https?://|www\.)[^\s<>()]{1,2000}")
_LINE_MARK = re.compile(r"^[ \t]{0,12}(?:#{1,6}[ \t]+|[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?|\d{1,3}[.)][ \t]+)", re.MULTILINE)
_RULE = re.compile(r"^[ \t]{0,3}(?:[-*_=|:+][ \t]*){3,200}$", re.MULTILINE)
_EMPHASIS = re.compile(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}|(?<!\w)_{1,3}(?=\w)|(?<=[\w.,;:!?])_{1,3}(?!\w)|~~|`+")
_EMPHASIS_MARKS = frozenset("*_~`")
_TABLE_ROW = re.compile(r"^[ \t]{0,3}\|.*\|[ \t]*$", re.MULTILINE)
_MARKUP = frozenset("<&*_`~[#|>-+•=:)./")
_INVALID = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff\ud800-\udfff\ue000-\uf8ff]")
_MAX_INVALID_SHARE = 0.02
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
"""Soft hyphens, joiners and marks of direction. Between letters, they would hide words from the model."""

_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u03bf"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
    "aeopcyxijshdqwoABEKMHOPCTXIJSABEZHIKMNOPTYX",
)
"""Cyrillic and Greek letters, and the Latin letters that look the same. In an English word, they would hide it from the model."""

_LOOKALIKE = re.compile(f"[{''.join(map(chr, _LOOKALIKES))}]")
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN_LETTER = re.compile(r"[A-Za-z]")


_CODE_LINE = re.compile(
    r"""
    .*[{};]\s*$ | .*\)\s*:\s*$
    | .*(?:=>|->|::|==|!=|&&|\|\||\+=|</|/>|\(\))
    | \s*(?:import|from|def|class|func|fn|function|const|let|var|public|private|static|return|package|using|namespace|elif|else:|try:)\b
    | \s*(?:\#include|\#!|//|/\*|\$\s|>>>\s|@\w+\s*$|SELECT\b|INSERT\b|CREATE\b|UPDATE\b)
    | \s*[\w.\[\]"']+\s*[:=]\s*[\w"'\[{(.\-]+,?\s*$
    """,
    re.VERBOSE,
)
"""A line that looks like code, unless it ends as a sentence does."""

_PROSE_END = re.compile(r"[a-z]{2}[\"')\]]*[.!?,][\"')\]]*\s*$")
_MIN_CODE_LINES = 3
_MIN_CODE_LINE_SHARE = 0.5
_CODE_SYMBOLS = re.compile(r"[{}\[\]<>=;|\\$@#&^~_+*/]")
_COMPUTATION_SYMBOL = re.compile(r"\d[ \t]?[=*+/][ \t]?(?=[\d-])")
"""A symbol between two numbers, as in the prose of a computation."""

_MAX_SYMBOL_SHARE = 0.08
_SAMPLE_CHARS, _MAX_SAMPLES = 600, 6
_MIN_ENGLISH_WORDS = 15
_LATIN_LETTERS = re.compile(r"[A-Za-z\u00c0-\u024f]")
_MIN_LATIN_SHARE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """
    The prose of a text.

    Attributes:
        text: The prose, in the order of the text.
        words: Its number of words.
        code_words: Words of blocks of code, which are not in `text`.
        quoted_words: Words of block quotations, which are not in `text`.
        problem: Why the text is no English prose, or None.
        run_starts: Offsets in `text` where a part begins that follows a deleted one, ascending; the first is 0.
        source_starts: The offset in the text as it was given, of each of these parts.
    """

    text: str
    words: int
    code_words: int
    quoted_words: int
    problem: PlainTextProblem | None
    run_starts: tuple[int, ...]
    source_starts: tuple[int, ...]

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Return the offsets, in the text as it was given, of the characters from *start* to before *end* of the prose."""
        if end <= start:
            offset = self._to_source(start)
            return offset, offset
        return self._to_source(start), self._to_source(end - 1) + 1

    def _to_source(self, offset: int) -> int:
        run = bisect_right(self.run_starts, offset) - 1
        return self.source_starts[run] + offset - self.run_starts[run]


def count_words(text: str) -> int:
    """Return the number of words of *text*."""
    return len(WORD.findall(text))


def extract_plain_text(text: str) -> PlainText:
    """Return the prose of *text*, which may be Markdown, HTML or anything else. Raises nothing."""
    invalid_count = len(_INVALID.findall(text))
    masked = _INVALID.sub(_DELETED, text) if invalid_count else text
    if not masked.isascii():
        masked = _INVISIBLE.sub(_DELETED, masked)
        if _LOOKALIKE.search(masked):
            masked = _LETTERS.sub(_replace_lookalikes, masked)
    code_words = quoted_words = 0
    if not _MARKUP.isdisjoint(masked):
        masked, code_words, quoted_words = _mask_blocks(masked)
        masked = _mask_markup(masked)
    prose, run_starts, source_starts = _delete_masked(masked)
    words = count_words(prose)
    return PlainText(
        text=prose,
        words=words,
        code_words=code_words,
        quoted_words=quoted_words,
        problem=_find_problem(
            prose, words=words, code_words=code_words, quoted_words=quoted_words, invalid_share=invalid_count / max(1, len(text))
        ),
        run_starts=run_starts,
        source_starts=source_starts,
    )


def _mask(match: re.Match[str]) -> str:
    return _DELETED * len(match.group())


def _replace_lookalikes(word: re.Match[str]) -> str:
    """Return a word of two scripts with Latin letters. A word of Cyrillic or Greek letters alone stays."""
    return word.group().translate(_LOOKALIKES) if _LATIN_LETTER.search(word.group()) else word.group()


def _mask_blocks(text: str) -> tuple[str, int, int]:
    """Mask blocks of code and quotations. Return the text and the words of both."""
    code_words = quoted_words = 0
    if "</" in text:
        text, code_words, quoted_words = _mask_html_blocks(text)
    if "```" not in text and "~~~" not in text and ">" not in text:
        return text, code_words, quoted_words
    lines = list[str]()
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence or mark:
            code_words += count_words(line) if fence else 0
            if fence and mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
            elif not fence and mark:
                fence = mark[1]
            lines.append(_mask_line(line))
        elif _QUOTE_LINE.match(line):
            quoted_words += count_words(line)
            lines.append(_mask_line(line))
        else:
            lines.append(line)
    return "".join(lines), code_words, quoted_words


def _mask_html_blocks(text: str) -> tuple[str, int, int]:
    """Mask the elements of code and quotations, each up to the end tag of its name. An element without one stays."""
    words = {"code": 0, "quoted": 0}
    parts = list[str]()
    copied = 0
    opening: re.Match[str] | None = None
    for tag in _HTML_BLOCK_TAG.finditer(text):
        if opening is None:
            opening = None if tag[1] else tag
        elif tag[1] and tag[2].lower() == opening[2].lower():
            words["quoted" if tag[2].lower() == "blockquote" else "code"] += count_words(
                _HTML_TAG.sub(" ", text[opening.end() : tag.start()])
            )
            parts += [text[copied : opening.start()], _DELETED * (tag.end() - opening.start())]
            copied, opening = tag.end(), None
    parts.append(text[copied:])
    return "".join(parts), words["code"], words["quoted"]


def _mask_comments(text: str) -> str:
    """Mask the comments of HTML. One without an end stays."""
    parts = list[str]()
    copied = 0
    while (start := text.find(_COMMENT_START, copied)) >= 0 and (end := text.find(_COMMENT_END, start)) >= 0:
        end += len(_COMMENT_END)
        parts += [text[copied:start], _DELETED * (end - start)]
        copied = end
    return "".join([*parts, text[copied:]])


def _mask_line(line: str) -> str:
    """Mask *line*, but not its end."""
    content = line.rstrip("\r\n")
    return _DELETED * len(content) + line[len(content) :]


def _mask_markup(text: str) -> str:
    """Mask the marks of Markdown and HTML, and addresses."""

    def mask_tag(match: re.Match[str]) -> str:
        is_block = _BLOCK_TAG.match(match.group()) is not None
        return ("\n" if is_block else _DELETED) + _DELETED * (len(match.group()) - 1)

    def decode_entity(match: re.Match[str]) -> str:
        decoded = _INVALID.sub(" ", html.unescape(match.group()))
        return decoded + _DELETED * (len(match.group()) - len(decoded)) if len(decoded) <= len(match.group()) else match.group()

    def mask_address(match: re.Match[str]) -> str:
        return _DELETED + match[1] + _DELETED * (len(match.group()) - 1 - len(match[1]))

    if "<" in text:
        text = _mask_comments(text)
        text = _HTML_TAG.sub(mask_tag, text)
    if "](" in text:
        text = _IMAGE.sub(_mask, text)
        text = _LINK.sub(mask_address, text)
    if "://" in text or "www." in text:
        text = _URL.sub(_mask, text)
    text = _RULE.sub(_mask, text)
    text = _LINE_MARK.sub(_mask, text)
    if "|" in text:
        text = _TABLE_ROW.sub(lambda row: row.group().replace("|", _DELETED), text)
    if not _EMPHASIS_MARKS.isdisjoint(text):
        text = _EMPHASIS.sub(_mask, text)
    return _ENTITY.sub(decode_entity, text) if "&" in text else text


def _delete_masked(masked: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the characters that remain, and the offsets of their runs before and after the deletion."""
    if _DELETED not in masked:
        return masked, (0,), (0,)
    runs, run_starts, source_starts = list[str](), list[int](), list[int]()
    length = 0
    for match in re.finditer(f"[^{_DELETED}]+", masked):
        run_starts.append(length)
        source_starts.append(match.start())
        runs.append(match.group())
        length += len(match.group())
    return "".join(runs), tuple(run_starts) or (0,), tuple(source_starts) or (0,)


def _find_problem(prose: str, *, words: int, code_words: int, quoted_words: int, invalid_share: float) -> PlainTextProblem | None:
    if invalid_share > _MAX_INVALID_SHARE:
        return "binary"
    if not words:
        return "code" if code_words else "quoted" if quoted_words else "empty"
    if code_words > 2 * words:
        return "code"
    if quoted_words > 2 * words:
        return "quoted"
    if _is_code(prose):
        return "code"
    if _is_english(prose, words):
        return None
    return "code" if _is_numeric(prose) else "language"


def _is_numeric(prose: str) -> bool:
    """Return whether *prose* has more digits than letters, as tables and logs have. Letters of other scripts show a language."""
    return sum(map(str.isdigit, prose)) > sum(map(str.isalpha, prose)) and _is_latin(prose)


def _is_latin(prose: str) -> bool:
    return prose.isascii() or len(_LATIN_LETTERS.findall(prose)) >= _MIN_LATIN_SHARE * sum(map(str.isalpha, prose))


def _is_code(prose: str) -> bool:
    symbols = len(_CODE_SYMBOLS.findall(prose)) - len(_COMPUTATION_SYMBOL.findall(prose))
    letters = len(prose) - prose.count(" ")
    if letters and symbols > _MAX_SYMBOL_SHARE * letters:
        return True
    lines = [line for line in prose.splitlines() if line.strip()]
    if len(lines) < _MIN_CODE_LINES:
        return False
    code_lines = sum(1 for line in lines if len(line) < 300 and not _PROSE_END.search(line) and _CODE_LINE.match(line))
    return code_lines >= _MIN_CODE_LINE_SHARE * len(lines)


def _is_english(prose: str, words: int) -> bool:
    """
    Return whether more than half of *prose* is English, as far as the function words of evenly spread samples show.

    The language of a few words is not decided.
    """
    if not _is_latin(prose):
        return False
    count = max(1, min(_MAX_SAMPLES, round(len(prose) / _SAMPLE_CHARS)))
    size = len(prose) if count == 1 else min(_SAMPLE_CHARS, len(prose) // count)
    samples = [prose[start : start + size] for start in ((len(prose) - size) * number // max(1, count - 1) for number in range(count))]
    samples = [sample for sample in samples if count_words(sample) >= _MIN_ENGLISH_WORDS] or samples
    votes = 0
    for sample in samples:
        languages, may_be_english = guess_languages(sample)
        is_undecided = not languages and words < _MIN_ENGLISH_WORDS
        votes += languages == (ENGLISH,) or (may_be_english and is_undecided)
    return 2 * votes > len(samples)
