"""Addresses of ntfy topics. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from rookery.kernel.secret import Secret

_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
_PRIORITIES = {"min": 1, "low": 2, "default": 3, "high": 4, "max": 5, "urgent": 5, **{str(number): number for number in range(1, 6)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class NtfyAddress:
    """
    The parts of the address of a topic.

    Attributes:
        server_url: The URL of the server, to which messages are posted.
        priority: 1 to 5; None: that of the server.
        authorization: The value of the header of that name; None: the topic is open.
    """

    server_url: str
    topic: str
    priority: int | None = None
    authorization: Secret | None = None


def parse_ntfy_address(address: str) -> NtfyAddress:
    """
    Return the parts of an address such as `https://ntfy.sh/my-topic`.

    A token or a login stands before the host, as in `https://tk_…@ntfy.sh/my-topic` and `https://user:password@ntfy.sh/my-topic`. The
    priority is the parameter of that name, as in `https://ntfy.sh/my-topic?priority=high`.

    Raises:
        ValueError: The address is invalid. The message does not contain it.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    topic = parts.path.strip("/")
    if parts.scheme not in {"http", "https"} or not host or _TOPIC.fullmatch(topic) is None:
        msg = "must be the URL of a topic, such as https://ntfy.sh/my-topic; a topic has 1 to 64 letters, digits, - and _"
        raise ValueError(msg)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    priority_text = parameters.pop("priority", None)
    priority = None if priority_text is None else _PRIORITIES.get(priority_text)
    if parameters or parts.fragment or (priority_text is not None and priority is None):
        msg = f"may have one parameter, priority, which is one of {', '.join(_PRIORITIES)}"
        raise ValueError(msg)
    server_host = f"[{host}]" if ":" in host else host
    return NtfyAddress(
        server_url=f"{parts.scheme}://{server_host}{'' if port is None else f':{port}'}/",
        topic=topic,
        priority=priority,
        authorization=_read_authorization(unquote(parts.username or ""), unquote(parts.password or "")),
    )


def _read_authorization(user: str, password: str) -> Secret | None:
    if user and password:
        return Secret("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    token = user or password
    if not token:
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        msg = "has a token with characters that no token has"
        raise ValueError(msg)
    return Secret(f"Bearer {token}")
