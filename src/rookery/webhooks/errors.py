"""
What can go wrong with webhooks.

    NotFound (kernel)           404  resource_not_found   webhook, delivery
    ValidationFailed (kernel)   422  validation_error     an address that we do not connect to, an event that there is not
    Conflict (kernel)           409  conflict             a second rotation in grace, a disabled endpoint, too many endpoints
    RookeryError
    ├── DeliveriesFull          429  deliveries_full
    └── ReceiverUnreachable     —    for the dispatcher alone: no answer came
"""

from __future__ import annotations

from rookery.kernel.errors import RookeryError


class DeliveriesFull(RookeryError):
    """As many deliveries of the workspace wait as may (D-17)."""

    status, code = 429, "deliveries_full"

    def __init__(self) -> None:
        super().__init__(
            "Too many deliveries of this workspace wait already; try again when they are fewer.", headers={"Retry-After": "60"}
        )


class ReceiverUnreachable(RookeryError):
    """No answer came: refused, not in time, no such host, a broken connection. Its message is what the attempt's row tells."""

    status, code = 502, "receiver_unreachable"
