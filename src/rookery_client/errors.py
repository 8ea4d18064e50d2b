"""
What the client raises.

    RookeryClientError
    └── WebhookRejected     a delivery that is not to be trusted; answer it with 401
"""

from __future__ import annotations

from typing import Literal

WebhookProblem = Literal[
    "no_signature", "bad_signature", "wrong_signature", "no_timestamp", "bad_timestamp", "too_old", "too_new", "bad_body"
]


class RookeryClientError(Exception):
    """The root of what the client raises on purpose."""


class WebhookRejected(RookeryClientError):
    """
    A delivery that Rookery did not send, or not now; its text never has a secret or a signature in it.

    Attributes:
        reason: Which check it did not pass, for a metric or a log.
    """

    def __init__(self, reason: WebhookProblem, message: str) -> None:
        super().__init__(message)
        self.reason = reason
