"""The errors of `rookery connect`, none of which leaves a file half written, and the findings of a check of a connected client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.safe_texts import escape_control_characters
from rookery.tools.discovery.client_guides import CatalogueSize


class UneditableText(Exception):
    """A text cannot take an edit. The message states the reason, and the line and the column of a syntax error."""


class ClientFileBroken(Exception):
    """A client's file cannot be edited and is left unchanged. The message states the file and the reason."""


class ServerUnusable(Exception):
    """
    The server does not answer as a Rookery server does.

    Attributes:
        code: The kind of the failure: unreachable, key_refused, key_lacks_scope or unexpected_answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(escape_control_characters(message))  # a part may come from the server, and goes to a terminal
        self.code = code


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
