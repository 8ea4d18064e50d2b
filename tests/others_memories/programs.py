"""The programs that `make others-memories` runs, pinned, each optional, and the files that each writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """
    A file or folder that a program writes.

    Attributes:
        name: Its path in the folder of the program, as in the command.
        companion: The file for `--with`.
        options: Further options of the import.
        has_history: It has the older version of the changed fact.
        is_refused: The import names the product and refuses it.
    """

    name: str
    companion: str | None = None
    options: tuple[str, ...] = ()
    has_history: bool = False
    is_refused: bool = False


@dataclass(frozen=True, kw_only=True)
class WriterProgram:
    """
    A program with memories.

    Attributes:
        id: Its name for `--from`.
        package: The package, as its registry names it.
        kind: How it is installed: by the lock of its id, or by npm.
        files: What its writer writes.
        unavailable: The reason why it is not run at all.
    """

    id: str
    package: str
    version: str
    kind: Literal["python", "npm"] = "python"
    files: tuple[WrittenFile, ...] = ()
    unavailable: str = ""


PROGRAMS = (
    WriterProgram(
        id="mem0",
        package="mem0ai",
        version="2.2.1",
        files=(
            WrittenFile(name="get_all.json"),
            WrittenFile(name="get_all.json", companion="history.db", has_history=True),
            WrittenFile(name="scroll.json"),
            WrittenFile(name="history.db", is_refused=True),
            WrittenFile(name="qdrant/collection/mem0/storage.sqlite", is_refused=True),
        ),
    ),
    WriterProgram(
        id="server-memory",
        package="@modelcontextprotocol/server-memory",
        version="2026.8.31",
        kind="npm",
        files=(WrittenFile(name="memory.jsonl"), WrittenFile(name="read_graph.json")),
    ),
    WriterProgram(
        id="mcp-memory-service",
        package="mcp-memory-service",
        version="12.4.0",
        files=(WrittenFile(name="sqlite_vec.db", has_history=True), WrittenFile(name="export.json", has_history=True)),
    ),
    WriterProgram(
        id="langgraph",
        package="langgraph-checkpoint-sqlite",
        version="3.1.2",
        files=(WrittenFile(name="store.db"), WrittenFile(name="items.jsonl")),
    ),
    WriterProgram(
        id="mempalace",
        package="mempalace",
        version="3.11.0",
        files=(
            WrittenFile(name="palace/chroma.sqlite3", options=("--timezone", "Asia/Tokyo")),
            WrittenFile(name="export", is_refused=True),
        ),
    ),
    WriterProgram(
        id="graphiti",
        package="graphiti-core",
        version="0.31.2",
        files=(WrittenFile(name="edges.json", has_history=True), WrittenFile(name="edges.jsonl", has_history=True)),
    ),
    WriterProgram(id="memori", package="memori", version="3.3.6", files=(WrittenFile(name="memori.db"),)),
    WriterProgram(
        id="basic-memory", package="basic-memory", version="0.24.1", unavailable="it needs Python 3.12, and Rookery's tests run on 3.11"
    ),
    WriterProgram(
        id="claude-code", package="@anthropic-ai/claude-code", version="2.1.328", unavailable="its memories are written by its own model"
    ),
    WriterProgram(
        id="open-webui", package="open-webui", version="", unavailable="it was not installed; the form is that of its public code"
    ),
    WriterProgram(id="letta", package="letta", version="", unavailable="it was not installed; the form is that of its public schema"),
)
