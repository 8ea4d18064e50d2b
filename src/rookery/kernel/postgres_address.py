"""
The address of a PostgreSQL server, read by one rule for SQLAlchemy, the driver and its pools.

libpq, SQLAlchemy and urllib read the same address differently, and repeat parts of one that is invalid, such as its password, in their
errors, which are logged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import make_conninfo

from rookery.kernel.errors import WrongSettings

ConnectionParameters = dict[str, str]
"""The parameters of libpq by name. They contain the password."""

_ADDRESS = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^:/@]*)(?::(?P<password>[^@]*))?@)?(?P<hosts>[^/?@\s]*)(?:/(?P<database>[^?]*))?(?:\?(?P<options>.*))?",
    re.DOTALL,
)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^:\[\]]*)(?::(?P<port>\d{0,5}))?")
_MAX_PORT = 65_535

_REASONS = (
    (
        re.compile(r"unsupported startup parameter", re.IGNORECASE),
        "the pooler before it refuses the options of the session; with PgBouncer, set ignore_startup_parameters = options",
    ),
    (re.compile(r"statement pooling mode", re.IGNORECASE), "the pooler before it is in statement mode, which allows no transactions"),
    (re.compile(r"refused", re.IGNORECASE), "it refuses connections"),
    (re.compile(r"resolve host|name or service not known|no address", re.IGNORECASE), "the name of its host is unknown"),
    (re.compile(r"password|authentication|pg_hba\.conf|role .* does not exist", re.IGNORECASE), "it refused the login"),
    (re.compile(r"database .* does not exist", re.IGNORECASE), "it has no such database"),
    (re.compile(r"too many|remaining connection slots", re.IGNORECASE), "it has too many connections"),
    (re.compile(r"starting up|shutting down|in recovery mode", re.IGNORECASE), "it is starting or stopping"),
    (re.compile(r"certificate|ssl|tls", re.IGNORECASE), "the connection by TLS failed"),
    (re.compile(r"timeout expired|timed out", re.IGNORECASE), "it did not answer in time"),
)

TCP_OPTIONS: Mapping[str, str] = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
"""
A connection fails 20 to 25 s after the last answer of the host, even in the middle of a statement. By default it takes hours.

In seconds, but `tcp_user_timeout` is in milliseconds. Connections by a Unix socket ignore them.
"""


def parse_postgres_address(address: str, *, setting: str) -> ConnectionParameters:
    """
    Return the parameters of the connection to *address*, `postgresql://user:password@host:5432/database?sslmode=verify-full`.

    There may be several hosts, separated by commas, of which libpq uses the first that it can.

    Args:
        setting: The setting that has the address, for the error.

    Raises:
        WrongSettings: It is invalid. The message has no part of it, because a part may be the password.
    """
    match = _ADDRESS.fullmatch(address)
    options = _parse_options(match["options"] or "") if match else {}
    hosts = None if match is None else _parse_hosts(options.pop("host", None) or match["hosts"])
    invalid = WrongSettings(
        f"{setting}: invalid address; use postgresql://user:password@host:5432/database, and write special characters of the password such "
        "as @ and % as %40 and %25"
    )
    if match is None or hosts is None:
        raise invalid
    host, port = hosts
    target = {"host": host, "port": port, "user": unquote(match["user"] or ""), "dbname": unquote(match["database"] or "")}
    parameters = {name: value for name, value in target.items() if value}
    if match["password"] is not None:
        parameters["password"] = unquote(match["password"])
    parameters |= options
    try:
        make_conninfo(**parameters)
    except psycopg.Error:
        if "@" in (match["options"] or ""):  # then the end of a password with @ and ? may be taken for the name of a parameter
            raise invalid from None
        names = ", ".join(sorted(options))
        raise WrongSettings(f"{setting}: libpq does not know one of the parameters of the address: {names}") from None
    return parameters


def add_options(parameters: ConnectionParameters, options: str) -> ConnectionParameters:
    """Return *parameters* with options of the session, such as `-c timezone=UTC`, after those of the address."""
    return {**parameters, "options": f"{parameters.get('options', '')} {options}".strip()}


def _parse_options(text: str) -> dict[str, str]:
    """Return the parameters after the question mark. Several hosts are joined, as libpq takes them."""
    options = dict[str, str]()
    for part in filter(None, text.split("&")):
        name, _, value = map(unquote, part.partition("="))
        options[name] = f"{options[name]},{value}" if name == "host" and name in options else value
    return options


def _parse_hosts(text: str) -> tuple[str, str] | None:
    """Return the hosts and their ports as libpq takes them, each separated by commas; None if one is invalid."""
    hosts, ports = list[str](), list[str]()
    for part in text.split(","):
        if part.startswith("/"):
            hosts.append(part)  # the folder of a socket
            ports.append("")
            continue
        match = _HOST.fullmatch(part)
        if match is None or int(match["port"] or 1) not in range(1, _MAX_PORT + 1):
            return None
        hosts.append(unquote(match["host"]).strip("[]"))
        ports.append(match["port"] or "")
    return ",".join(hosts), ",".join(ports) if any(ports) else ""


def describe_connection_error(error: psycopg.Error) -> str:
    """
    Return why no connection could be made, without the names of hosts, users and databases, which callers of the API may not see.

    libpq gives these errors only a text.
    """
    text = str(error)
    return next((reason for pattern, reason in _REASONS if pattern.search(text)), type(error).__name__)
