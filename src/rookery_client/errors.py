"""
Errors of the client.

    RookeryClientError
    └── WebhookRejected     a delivery that must not be trusted; answer 401
"""

from __future__ import annotations

from typing import Literal

WebhookProblem = Literal[
    "no_signature", "bad_signature", "wrong_signature", "no_timestamp", "bad_timestamp", "too_old", "too_new", "bad_body"
]


class RookeryClientError(Exception):
    """Base class of the client's errors."""


class WebhookRejected(RookeryClientError):
    """
    A delivery that fails verification. The message contains no secret and no signature.

    Attributes:
        reason: Identifier of the failed check, for metrics and logs.
    """

    def __init__(self, reason: WebhookProblem, message: str) -> None:
        super().__init__(message)
        self.reason = reason
