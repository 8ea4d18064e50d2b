"""Import of agents' instruction files such as CLAUDE.md and AGENTS.md. Each bullet, and other text of a section, is a convention."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rookery.kernel.errors import RookeryError
from rookery.memory.merging import MAX_CONTENT_CHARS
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.transfer.field_reader import MAX_NAME_CHARS, MAX_PROJECT_CHARS, MAX_TAG_CHARS
from rookery.memory.transfer.items import NO_WORKSPACE_ID, ImportedMemory, ImportItem, RejectedItem
from rookery.memory.transfer.markdown import MarkdownDocument, Section, build_parser, parse_document, split_text
from rookery.memory.transfer.notes import Note

AGENT_FILE_NAMES = frozenset({"claude.md", "agents.md", "claude.local.md", "gemini.md", "copilot-instructions.md"})

TYPE = "convention"
_CONFIDENCE = 0.8
_MAX_TEXT_CHARS = MAX_CONTENT_CHARS - 2_000
"""Maximum length of the text, with room for its headings."""

_BULLET = re.compile(r"\s*[-*+]\s+(?:\[[ xX]\]\s+)?")
_COMMENT = re.compile(r"\s*<!--.*-->\s*", re.DOTALL)
_NON_SLUG = re.compile(r"[^\w]+")


@dataclass(frozen=True, slots=True)
class AgentFileReader:
    """A reader of instruction files."""

    reader: MarkdownIt = field(default_factory=build_parser)

    def iter_items(self, note: Note, *, project: str | None) -> Iterator[ImportItem]:
        """Yield the memories of a file in its order, all in *project*. Comments are left out."""
        try:
            yield from [ImportItem(location=note.name, content=memory) for memory in self._iter_memories(note, project)]
        except RookeryError as error:
            yield ImportItem(location=note.name, content=RejectedItem(reason=error.message))

    def _iter_memories(self, note: Note, project: str | None) -> Iterator[ImportedMemory]:
        document = parse_document(note.text, self.reader)
        template = Memory(
            id="",
            workspace_id=NO_WORKSPACE_ID,
            org=None,
            project=project and project[:MAX_PROJECT_CHARS],
            agent_id=None,
            session_id=None,
            memory_scope=MemoryScope.PROJECT,
            type=TYPE,
            tags=(),
            confidence=_CONFIDENCE,
            base_confidence=_CONFIDENCE,
            source=note.name[-MAX_NAME_CHARS:],
            content="",
            content_at=note.modified_at,
            created_at=note.modified_at,
            updated_at=note.modified_at,
        )
        names = {note.title.lower(), f"{note.title}.md".lower()}
        for section in document.sections:
            path = [heading.text for heading in section.path if heading.text and heading.text.lower() not in names]
            tag = _NON_SLUG.sub("-", path[-1].lower()).strip("-_")[:MAX_TAG_CHARS] if path else ""
            for text in _iter_statements(document, section):
                for piece in split_text(text, _MAX_TEXT_CHARS):
                    content = _with_headings(path, piece)
                    # Without the file name, so that AGENTS.md and a copy named CLAUDE.md give the same memories.
                    yield ImportedMemory(
                        memory=replace(template, content=content, tags=(tag,) if tag else ()),
                        identity=("agent file", project or "", content),
                    )


def find_project(path: Path) -> str | None:
    """Return the project of a file: the name of its repository's folder, or of its nearest folder that is not hidden."""
    folders = [folder for folder in path.resolve().parents if folder.name]
    repository = next((folder for folder in folders if (folder / ".git").exists()), None)
    if repository is not None:
        return repository.name
    return next((folder.name for folder in folders if not folder.name.startswith(".")), None)


def _iter_statements(document: MarkdownDocument, section: Section) -> Iterator[str]:
    """
    Yield the other text of the section in one piece, then each bullet.

    A line that ends in a colon is put before each bullet of the list that follows it.
    """
    prose = list[str]()
    bullets = list[str]()
    tokens = section.tokens
    for index, token in enumerate(tokens):
        if token.level or token.nesting < 0 or token.map is None or token.type == "hr":
            continue
        text = "\n".join(document.lines[token.map[0] : token.map[1]]).strip("\n")
        if token.type == "bullet_list_open":
            lead = prose.pop() if prose and prose[-1].endswith(":") else None
            bullets += [f"{lead} {item}" if lead else item for item in _iter_bullets(document, tokens[index:])]
        elif not (token.type == "html_block" and _COMMENT.fullmatch(text)):
            prose.append(text)
    if prose:
        yield "\n\n".join(prose)
    yield from bullets


def _iter_bullets(document: MarkdownDocument, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the bullets of the list that *tokens* begin with, each with the lines indented under it."""
    for token in tokens[1:]:
        if token.type == "bullet_list_close" and token.level == 0:
            return
        if token.type == "list_item_open" and token.level == 1 and token.map:
            first, *rest = document.lines[token.map[0] : token.map[1]]
            text = "\n".join([_BULLET.sub("", first, count=1), textwrap.dedent("\n".join(rest))]).strip()
            if text:
                yield text


def _with_headings(path: Sequence[str], text: str) -> str:
    gap = "\n\n" if "\n" in text else " "
    return f"{' – '.join(path)}:{gap}{text}"[:MAX_CONTENT_CHARS] if path else text
