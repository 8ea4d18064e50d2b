"""
Parse the addresses of embedding services. No I/O.

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
"""Version of the texts that are sent for a passage. Raise it when chunks or context change: stored vectors then count as stale (D-54)."""

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
    An embedding service and one of its models.

    Attributes:
        endpoint: URL that texts are posted to.
        requested_dimension: Dimension requested from the service; None for the model's default.
        stored_dimension: Dimension of stored vectors; shorter ones are padded with zeros.
        query_prefix: Text before each query; some models require one.
        passage_prefix: Text before each chunk of a passage.
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
        The model identifier that is stored with each vector (D-54).

        It does not contain the host: a service that moves returns the same vectors.
        """
        prefix = f"+{hashlib.sha256(self.passage_prefix.encode()).hexdigest()[:8]}" if self.passage_prefix else ""
        return f"{self.kind}/{self.model_name}/{self.stored_dimension}{prefix}-{VERSION}"


def is_remote(url: str) -> bool:
    """Return whether *url* is the address of a service."""
    return url.partition(":")[0] in _SCHEMES


def parse_url(url: str, *, dimension: int, setting: str) -> RemoteModel:
    """
    Return the service and model that *url* describes. `is_remote(url)` must be true.

    Args:
        dimension: Dimension of the vectors if *url* has no `dimensions`.
        setting: Setting that contains *url*. Errors contain its name, never its value.

    Raises:
        WrongSettings: The host or the model is missing, or a part is invalid.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongSettings(f"{setting}: invalid URL; use {' or '.join(URL_FORMS)}") from error
    kind, has_tls = _SCHEMES[parts.scheme]
    if not host:
        raise WrongSettings(f"{setting}: the host is missing; use {' or '.join(URL_FORMS)}")
    options = _parse_options(parts.query, setting)
    key = unquote(parts.password or parts.username or "")
    if key and parts.scheme in {"openai", "ollama"} and not _is_private_host(host):
        raise WrongSettings(
            f"{setting}: the key would be sent to a public host without encryption; use {kind}+https://, or {kind}+http:// to allow it"
        )
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
    unknown_options = sorted(options.keys() - _OPTIONS)
    if unknown_options:
        raise WrongSettings(f"{setting}: unknown option {unknown_options[0][:40]!r}; the options are {', '.join(sorted(_OPTIONS))}")
    return options


def _parse_model_name(kind: Literal["openai", "ollama"], parts: SplitResult, options: dict[str, str], setting: str) -> str:
    name = options.get("model", "").strip() or (unquote(parts.path).strip("/ ") if kind == "ollama" else "")
    if not name:
        form = URL_FORMS[0] if kind == "openai" else URL_FORMS[1]
        raise WrongSettings(f"{setting}: the model is missing; use {form}")
    return name


def _endpoint_path(kind: Literal["openai", "ollama"], parts: SplitResult) -> str:
    if kind == "ollama":
        return "/api/embed"
    return (parts.path.rstrip("/").removesuffix("/embeddings") or "/v1") + "/embeddings"


def _authority(host: str, port: int | None, kind: Literal["openai", "ollama"]) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    if port is None and kind == "ollama":
        port = _OLLAMA_PORT
    return bracketed if port is None else f"{bracketed}:{port}"


def _parse_dimensions(text: str | None, setting: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_DIMENSION):
        raise WrongSettings(f"{setting}: dimensions must be a whole number from 1 to {MAX_DIMENSION}, not {text[:40]!r}")
    return int(text)


def _is_private_host(host: str) -> bool:
    """Return whether *host* is on this machine or its network: a private address, a name without a dot, or a local domain."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return not address.is_global
