"""The options of libpq by which connections to PostgreSQL notice that the network or the server's host is gone."""

from __future__ import annotations

from collections.abc import Mapping

TCP_OPTIONS: Mapping[str, int] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""
A connection fails 20 to 25 s after the last answer of the host, even in the middle of a statement. By default it takes hours.

In seconds, but `tcp_user_timeout` is in milliseconds. Connections by a Unix socket ignore them.
"""
