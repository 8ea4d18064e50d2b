"""The errors of `rookery connect`. None of them leaves a file half written."""

from __future__ import annotations

from rookery.kernel.safe_texts import escape_control_characters


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
