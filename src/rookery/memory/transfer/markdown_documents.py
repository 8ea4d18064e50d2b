"""Markdown texts: their front matter, their sections, and pieces of a maximum length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its level, from 1, and its text."""

    level: int
    text: str

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """
    The lines from a heading, inclusive, to the next heading of any level.

    Attributes:
        ancestors: The headings above it, outermost first.
        heading: Its own heading; None for the text before the first heading.
        tokens: Its Markdown tokens without the heading.
    """

    ancestors: tuple[Heading, ...]
    heading: Heading | None
    start_line: int
    stop_line: int
    tokens: tuple[Token, ...]

    @property
    def path(self) -> tuple[Heading, ...]:
        """All its headings, its own last."""
        return self.ancestors if self.heading is None else (*self.ancestors, self.heading)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownDocument:
    """A Markdown text: its lines, its front matter as written (None if it has none), and its sections in order."""

    lines: Sequence[str]
    front_matter: str | None
    sections: Sequence[Section]

    def section_text(self, section: Section) -> str:
        """Return the text of a section, without empty lines around it."""
        return "\n".join(self.lines[section.start_line : section.stop_line]).strip("\n")


def build_parser() -> MarkdownIt:
    """Return a stateless parser for CommonMark with tables and front matter."""
    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin)


def parse_document(text: str, parser: MarkdownIt) -> MarkdownDocument:
    """Return *text*, parsed into sections."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = parser.parse(text)
    lines = text.split("\n")
    front, body_line = None, 0
    if tokens and tokens[0].type == "front_matter":
        front, body_line = tokens[0].content, (tokens[0].map or [0, 0])[1]
        tokens = tokens[1:]
    starts = [index for index, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0 and token.map]
    sections = list[Section]()
    first_stop = _start_line(tokens[starts[0]]) if starts else len(lines)
    preamble = tuple(tokens[: starts[0]] if starts else tokens)
    if preamble:
        sections.append(Section(ancestors=(), heading=None, start_line=body_line, stop_line=first_stop, tokens=preamble))
    above = list[Heading]()
    for start, next_start in zip(starts, [*starts[1:], None], strict=False):
        heading = Heading(int(tokens[start].tag[1:]), tokens[start + 1].content.replace("\n", " ").strip())
        above = [ancestor for ancestor in above if ancestor.level < heading.level]
        sections.append(
            Section(
                ancestors=tuple(above),
                heading=heading,
                start_line=_start_line(tokens[start]),
                stop_line=len(lines) if next_start is None else _start_line(tokens[next_start]),
                tokens=tuple(tokens[start + 3 : next_start]),
            )
        )
        above.append(heading)
    return MarkdownDocument(lines=lines, front_matter=front, sections=sections)


def split_document(document: MarkdownDocument, *, max_chars: int) -> list[str]:
    """
    Return the text in pieces of at most *max_chars* characters, split at headings into as few pieces as possible.

    A piece that begins under headings repeats them. A section that is too long by itself is split between paragraphs.
    """
    if not document.sections:
        return []
    document_text = "\n".join(document.lines[document.sections[0].start_line :]).strip("\n")
    if len(document_text) <= max_chars:
        return [document_text] if document_text.strip() else []
    parts, room = list[str](), 0
    for section in document.sections:
        text = document.section_text(section)
        if parts and len(text) + 2 <= room:
            parts[-1] += "\n\n" + text
        else:
            parts += split_section(document, section, max_chars=max_chars)
        room = max_chars - len(parts[-1]) if parts else 0
    return parts


def split_section(document: MarkdownDocument, section: Section, *, max_chars: int) -> list[str]:
    """Return a section with the headings above it, in pieces of at most *max_chars* characters; usually one."""
    above = "".join(f"{heading}\n" for heading in section.ancestors)[: max_chars // 2]
    return [above + piece for piece in split_text(document.section_text(section), max_chars - len(above))]


def split_text(text: str, max_chars: int) -> list[str]:
    """Split *text* into pieces of at most *max_chars* characters: between paragraphs, else lines, else words, else anywhere."""
    parts = list[str]()
    while len(text) > max_chars:
        position = next((at for gap in ("\n\n", "\n", " ") if (at := text.rfind(gap, max(1, max_chars // 4), max_chars)) > 0), max_chars)
        parts.append(text[:position].rstrip())
        text = text[position:].lstrip("\n")
    return [piece for piece in (*parts, text) if piece.strip()]


def _start_line(token: Token) -> int:
    return token.map[0] if token.map else 0
