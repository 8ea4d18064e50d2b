"""Markdown taken apart at its headings; what looks like one inside code is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its level, from 1, and its words as they are written."""

    level: int
    text: str

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """
    The lines from a heading, itself among them, to the next of any level.

    Attributes:
        above: The headings that it is under, outermost first.
        heading: Its own; None: what comes before the first.
        tokens: What it is made of, without the heading.
    """

    above: tuple[Heading, ...]
    heading: Heading | None
    start: int
    stop: int
    tokens: tuple[Token, ...]

    @property
    def path(self) -> tuple[Heading, ...]:
        """All its headings, its own last."""
        return self.above if self.heading is None else (*self.above, self.heading)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A Markdown text: its lines, its front matter as it is written (None: it has none), its sections in order."""

    lines: Sequence[str]
    front: str | None
    sections: Sequence[Section]

    def text(self, section: Section) -> str:
        """Return a section as it is written, without empty lines around it."""
        return "\n".join(self.lines[section.start : section.stop]).strip("\n")


def parser() -> MarkdownIt:
    """Return what reads Markdown: CommonMark, tables and front matter; it keeps nothing of what it read."""
    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin)


def document(text: str, reader: MarkdownIt) -> Document:
    """Take *text* apart."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = reader.parse(text)
    lines = text.split("\n")
    front, begin = None, 0
    if tokens and tokens[0].type == "front_matter":
        front, begin = tokens[0].content, (tokens[0].map or [0, 0])[1]
        tokens = tokens[1:]
    starts = [at for at, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0 and token.map]
    sections = list[Section]()
    first_stop = _line(tokens[starts[0]]) if starts else len(lines)
    preamble = tuple(tokens[: starts[0]] if starts else tokens)
    if preamble:
        sections.append(Section(above=(), heading=None, start=begin, stop=first_stop, tokens=preamble))
    above = list[Heading]()
    for at, following in zip(starts, [*starts[1:], None], strict=False):
        heading = Heading(int(tokens[at].tag[1:]), tokens[at + 1].content.replace("\n", " ").strip())
        above = [each for each in above if each.level < heading.level]
        sections.append(
            Section(
                above=tuple(above),
                heading=heading,
                start=_line(tokens[at]),
                stop=len(lines) if following is None else _line(tokens[following]),
                tokens=tuple(tokens[at + 3 : following]),
            )
        )
        above.append(heading)
    return Document(lines=lines, front=front, sections=sections)


def pieces(document: Document, *, most: int) -> list[str]:
    """
    Return the text in as few pieces of at most *most* characters as headings allow.

    A piece that begins under headings has them above it; a section that is too long by itself is cut between paragraphs.
    """
    if not document.sections:
        return []
    whole = "\n".join(document.lines[document.sections[0].start :]).strip("\n")
    if len(whole) <= most:
        return [whole] if whole.strip() else []
    found, room = list[str](), 0
    for section in document.sections:
        text = document.text(section)
        if found and len(text) + 2 <= room:
            found[-1] += "\n\n" + text
        else:
            found += parts(document, section, most=most)
        room = most - len(found[-1]) if found else 0
    return found


def parts(document: Document, section: Section, *, most: int) -> list[str]:
    """Return a section with the headings above it, in pieces of at most *most* characters: one, unless it is too long."""
    above = "".join(f"{heading}\n" for heading in section.above)[: most // 2]
    return [above + each for each in cut(document.text(section), most - len(above))]


def cut(text: str, most: int) -> list[str]:
    """Return *text* in pieces of at most *most* characters: between paragraphs, else lines, else words, else anywhere; none is a scrap."""
    found = list[str]()
    while len(text) > most:
        place = next((at for gap in ("\n\n", "\n", " ") if (at := text.rfind(gap, max(1, most // 4), most)) > 0), most)
        found.append(text[:place].rstrip())
        text = text[place:].lstrip("\n")
    return [piece for piece in (*found, text) if piece.strip()]


def _line(token: Token) -> int:
    return token.map[0] if token.map else 0
