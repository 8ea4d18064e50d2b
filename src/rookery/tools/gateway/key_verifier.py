"""Whether a key is still good: what a stream of the gateway must know long after its request was let in."""

from __future__ import annotations

from typing import Protocol

from rookery.access.models import Caller


class GatewayKeyVerifier(Protocol):
    """Who knows the keys as they are now."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* as its key is now; None: it would not be let in any more, for what needs that scope."""
        ...
