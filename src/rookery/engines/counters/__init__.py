"""Engines of `access.ports.RateLimitCounter`."""

from __future__ import annotations

from pathlib import Path

from rookery.access.ports import RateLimitCounter
from rookery.engines.counters.embedded import EmbeddedCounter
from rookery.kernel.errors import WrongSettings


def open_counter(address: str, *, data_dir: Path) -> RateLimitCounter:
    """
    Return the counter at *address*. `embedded:` is counters.db in *data_dir*, shared by all processes of the host.

    Raises:
        WrongSettings: No engine has this address.
    """
    if address == "embedded:":
        return EmbeddedCounter(data_dir / "counters.db")
    scheme = address.partition(":")[0]
    msg = f"ROOKERY_COUNTERS: unknown counter {scheme!r}; use embedded:"
    raise WrongSettings(msg)
