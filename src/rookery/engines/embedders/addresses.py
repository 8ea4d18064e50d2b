"""
The addresses of embedders that are services: what they name, and what cannot be. Pure.

    openai+https://:KEY@host/v1?model=NAME     any service with OpenAI's /v1/embeddings; openai:// without TLS
    ollama://host:11434/NAME                   Ollama's /api/embed; ollama+https:// with TLS
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret

VERSION = 1
"""Of what we send for a passage: raised when its chunks or its context change, which makes stored vectors stale (D-54)."""

URL_FORMS = ("openai+https://:KEY@HOST/v1?model=NAME", "ollama://HOST:11434/NAME")

MAX_DIMENSION = 16_384

_SCHEMES: dict[str, tuple[Literal["openai", "ollama"], bool]] = {
    "openai": ("openai", False),
    "openai+http": ("openai", False),
    "openai+https": ("openai", True),
    "ollama": ("ollama", False),
    "ollama+http": ("ollama", False),
    "ollama+https": ("ollama", True),
}
_OLLAMA_PORT = 11434
_OPTIONS = {"model", "dimensions", "query_prefix", "passage_prefix"}
_MAX_PREFIX_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModel:
    """
    A service and a model of it.

    Attributes:
        endpoint: Where texts are posted to.
        requested_dimension: What the service is asked for; None: what the model gives.
        stored_dimension: Of the vectors that we store: shorter ones are filled up with zeros.
        query_prefix: Goes before each question, as some models want; likewise *passage_prefix* before each chunk.
    """

    kind: Literal["openai", "ollama"]
    endpoint: str
    key: Secret | None
    model_name: str
    requested_dimension: int | None
    stored_dimension: int
    query_prefix: str
    passage_prefix: str

    @property
    def model(self) -> str:
        """
        What the vectors are of, as stored beside each (D-54).

        Not the host: a service that moves has the same vectors.
        """
        prefix = f"+{hashlib.sha256(self.passage_prefix.encode()).hexdigest()[:8]}" if self.passage_prefix else ""
        return f"{self.kind}/{self.model_name}/{self.stored_dimension}{prefix}-{VERSION}"


def is_remote(url: str) -> bool:
    """Tell whether *url* names a service."""
    return url.partition(":")[0] in _SCHEMES


def parse_url(url: str, *, dimension: int, setting: str) -> RemoteModel:
    """
    Return what *url*, for which `is_remote` holds, names.

    Args:
        dimension: Of the vectors, where the address says nothing of dimensions.
        setting: The variable that is told to be wrong; what it holds never is.

    Raises:
        WrongSettings: It names no host or no model, or what cannot be.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongSettings(f"{setting}: it is no address such as {' or '.join(URL_FORMS)}") from error
    kind, has_tls = _SCHEMES[parts.scheme]
    if not host:
        raise WrongSettings(f"{setting}: it names no host, as {' or '.join(URL_FORMS)} do")
    options = _parse_options(parts.query, setting)
    key = unquote(parts.password or parts.username or "")
    if key and parts.scheme in {"openai", "ollama"} and not _is_private_host(host):
        raise WrongSettings(f"{setting}: its key would cross networks in clear text; use {kind}+https://, or {kind}+http:// to insist")
    dimensions = _parse_dimensions(options.get("dimensions"), setting)
    return RemoteModel(
        kind=kind,
        endpoint=f"{'https' if has_tls else 'http'}://{_authority(host, port, kind)}{_endpoint_path(kind, parts)}",
        key=Secret(key) if key else None,
        model_name=_parse_model_name(kind, parts, options, setting),
        requested_dimension=dimensions,
        stored_dimension=dimension if dimensions is None else dimensions,
        query_prefix=options.get("query_prefix", "")[:_MAX_PREFIX_CHARS],
        passage_prefix=options.get("passage_prefix", "")[:_MAX_PREFIX_CHARS],
    )


def _parse_options(query: str, setting: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise WrongSettings(f"{setting}: there is no option {unknown[0][:40]!r}; there are {', '.join(sorted(_OPTIONS))}")
    return options


def _parse_model_name(kind: Literal["openai", "ollama"], parts: SplitResult, options: dict[str, str], setting: str) -> str:
    name = options.get("model", "").strip() or (unquote(parts.path).strip("/ ") if kind == "ollama" else "")
    if not name:
        form = URL_FORMS[0] if kind == "openai" else URL_FORMS[1]
        raise WrongSettings(f"{setting}: it names no model, as {form} does")
    return name


def _endpoint_path(kind: Literal["openai", "ollama"], parts: SplitResult) -> str:
    if kind == "ollama":
        return "/api/embed"
    return (parts.path.rstrip("/").removesuffix("/embeddings") or "/v1") + "/embeddings"


def _authority(host: str, port: int | None, kind: Literal["openai", "ollama"]) -> str:
    shown = f"[{host}]" if ":" in host else host
    if port is None and kind == "ollama":
        port = _OLLAMA_PORT
    return shown if port is None else f"{shown}:{port}"


def _parse_dimensions(text: str | None, setting: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_DIMENSION):
        raise WrongSettings(f"{setting}: dimensions must be a whole number from 1 to {MAX_DIMENSION}")
    return int(text)


def _is_private_host(host: str) -> bool:
    """Tell whether what is sent to *host* stays on this machine or its own network: an inner address, or a name without a dot."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return not address.is_global
