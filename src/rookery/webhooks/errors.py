"""
Errors of webhooks.

    NotFound (kernel)           404  resource_not_found   webhook, delivery
    ValidationFailed (kernel)   422  validation_error     an address that is not allowed, an unknown event
    Conflict (kernel)           409  conflict             a second rotation in the grace period, a disabled endpoint, too many endpoints
    RookeryError
    ├── DeliveriesFull          429  deliveries_full
    └── ReceiverUnreachable     —    only for the dispatcher: no response
"""

from __future__ import annotations

from rookery.kernel.errors import RookeryError


class DeliveriesFull(RookeryError):
    """The workspace has the maximum number of waiting webhook deliveries, so no event can be resent or tested."""

    status, code = 429, "deliveries_full"
    fields = "header `Retry-After`"

    def __init__(self) -> None:
        super().__init__("This workspace has too many open deliveries. Try again later.", headers={"Retry-After": "60"})


class ReceiverUnreachable(RookeryError):
    """The receiver of a webhook did not answer. Appears only in the delivery log, not in answers."""

    status, code = 502, "receiver_unreachable"
