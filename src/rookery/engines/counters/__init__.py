"""Engines of `access.ports.RateLimitCounter`. `open` selects one by its address."""

from __future__ import annotations

from pathlib import Path

from rookery.access.ports import RateLimitCounter
from rookery.engines.counters.embedded import EmbeddedCounter
from rookery.kernel.errors import WrongSettings
from rookery.kernel.urls import show_scheme

__all__ = ["open"]

_SERVER_SCHEMES = frozenset({"redis", "rediss", "valkey", "valkeys"})


def open(address: str, *, data_dir: Path, verify_ssl: bool = True) -> RateLimitCounter:  # noqa: A001 - each engine folder has an `open`
    """
    Return the counter at *address*. `embedded:` is counters.db in *data_dir*; `redis://host:6379/0` is a server of Valkey or Redis.

    Nothing is opened and no connection is made before the first request.

    Args:
        verify_ssl: Verify the certificate of a `rediss:` server.

    Raises:
        WrongSettings: No engine has this address.
    """
    if address == "embedded:":
        return EmbeddedCounter(data_dir / "counters.db")
    scheme = address.partition(":")[0]
    if scheme in _SERVER_SCHEMES:
        from rookery.engines.counters.valkey import ValkeyCounter

        return ValkeyCounter.from_address(address, verify_ssl=verify_ssl)
    raise WrongSettings(f"ROOKERY_COUNTERS: unknown counter{show_scheme(address)}; use embedded: or redis://host:6379/0 (rediss: with TLS)")
