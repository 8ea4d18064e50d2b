"""Access on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.kernel.wire import Answer


class RateLimitAnswer(Answer):
    """How much of its limit a key has used (spec 8)."""

    limit: Annotated[int, Field(description="Requests a window; 2147483647: unlimited.")]
    remaining: Annotated[int, Field(description="Requests left in this window.")]
    reset_in_seconds: Annotated[int, Field(description="Whole seconds until this window is over.")]
    reset: Annotated[int, Field(description="What X-RateLimit-Reset says: a Unix time for API keys, seconds for agent keys.")]
    used: Annotated[int, Field(description="Requests counted in this window.")]
    window_seconds: Annotated[int, Field(description="How long a window is: it begins with its first request.")]
    local: Annotated[bool, Field(description="Whether only this process is counted, the shared counter being down.")]
