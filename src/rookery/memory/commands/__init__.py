"""The commands of memories."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "remember",
        "Store a memory and print its id. Keyword search finds it at once, semantic recall once a running server has indexed it.",
        "rookery.memory.commands.memories:remember",
        40,
        "Memory",
    ),
    CommandEntry(
        "recall", "Print the memories that match a question, best first.", "rookery.memory.commands.memories:recall", 50, "Memory"
    ),
    CommandEntry(
        "search", "Print the memories that contain these words, best first.", "rookery.memory.commands.memories:search", 60, "Memory"
    ),
    CommandEntry("brain", "Maintain the shared memory.", "rookery.memory.commands.maintenance:app", 150, "Memory"),
    CommandEntry(
        "export",
        "Write the memories of a workspace with all their fields, for `rookery import` or for reading. Safe while the server runs.",
        "rookery.memory.commands.transfer:export",
        160,
        "Memory",
    ),
    CommandEntry(
        "import",
        "Store exported memories, Markdown notes, agents' instruction files or other programs' memories. Importing twice changes nothing.",
        "rookery.memory.commands.transfer:import_",
        170,
        "Memory",
    ),
)
