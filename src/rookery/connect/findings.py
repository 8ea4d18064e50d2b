"""The findings of a check of a connected client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.safe_texts import escape_control_characters
from rookery.tools.discovery.client_guides import CatalogueSize


@dataclass(frozen=True, slots=True)
class Finding:
    """
    A result of the check.

    Attributes:
        code: Its kind, a stable name for programs.
        text: The message. Parts of it may come from a server or from a file of others; `message` is safe to print.
        is_problem: The client does not work as it should. Otherwise it is worth knowing.
    """

    code: str
    text: str
    is_problem: bool = True
    file: Path | None = None

    @property
    def message(self) -> str:
        """The text, with its control characters escaped."""
        return escape_control_characters(self.text)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a check, and the size of the list that the server has for the key; None if it was not asked."""

    findings: tuple[Finding, ...]
    tools: CatalogueSize | None = None

    @property
    def is_ok(self) -> bool:
        """True if there is no problem."""
        return not any(finding.is_problem for finding in self.findings)
