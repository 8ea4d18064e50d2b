"""The facts that each program stores: some of two users, one long, one that is changed, and one that is deleted."""

from __future__ import annotations

FACTS = (
    ("kim", "pier", "The crane on the north pier lifts nine tons.", ("crane",)),
    ("kim", "pier", "Herons nest under the old jetty until July.", ("birds", "season")),
    ("ida", "office", "Der Schlüssel zum Lotsenhaus hängt hinter der blauen Tür.", ("schluessel",)),
    ("ida", "office", "Logbook of the ferry. " + "Wind from the west, no ice. " * 180, ("logbook",)),
)
OLD, NEW = "The harbour office opens at seven.", "The harbour office opens at half past eight."
DELETED = "The spare anchor lies behind shed four."
