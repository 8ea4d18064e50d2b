"""
Addresses of services that run models, with OpenAI's, Ollama's or Text Embeddings Inference's protocol.

    openai+https://:KEY@HOST/v1?model=NAME     OpenAI's protocol; openai:// and openai+http:// without TLS
    ollama://HOST:11434/NAME                   Ollama; ollama+https:// with TLS
    tei://HOST:8080/NAME                       Text Embeddings Inference; tei+https:// with TLS
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret

ModelServiceKind = Literal["openai", "ollama", "tei"]

URL_FORMS: dict[ModelServiceKind, str] = {
    "openai": "openai+https://:KEY@HOST/v1?model=NAME",
    "ollama": "ollama://HOST:11434/NAME",
    "tei": "tei://HOST:8080/NAME",
}
GENERATION_KINDS: tuple[ModelServiceKind, ...] = ("openai", "ollama")
EMBEDDING_KINDS: tuple[ModelServiceKind, ...] = ("openai", "ollama", "tei")

_SCHEMES: dict[str, tuple[ModelServiceKind, bool]] = {
    "openai": ("openai", False),
    "openai+http": ("openai", False),
    "openai+https": ("openai", True),
    "ollama": ("ollama", False),
    "ollama+http": ("ollama", False),
    "ollama+https": ("ollama", True),
    "tei": ("tei", False),
    "tei+http": ("tei", False),
    "tei+https": ("tei", True),
}
_OLLAMA_PORT = 11434


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServiceUrl:
    """
    A service and one of its models.

    Attributes:
        origin: Scheme, host and port of the service.
        path: The path of the address without a slash at its end; empty for the other kinds, whose path names the model.
        options: The other parameters of the address.
    """

    kind: ModelServiceKind
    origin: str
    path: str
    key: Secret | None
    model: str
    options: dict[str, str]


def is_model_service_url(url: str) -> bool:
    """Return whether the scheme of *url* is one of a service."""
    return url.partition(":")[0] in _SCHEMES


def parse_model_service_url(
    url: str, *, setting: str, kinds: Collection[ModelServiceKind], option_names: frozenset[str] = frozenset()
) -> ModelServiceUrl:
    """
    Return the service and model that *url* describes.

    The operator chooses the address, so it may be in any network: the egress guard is for addresses of users.

    Args:
        setting: Setting that contains *url*. Errors contain its name, never its value.
        kinds: Allowed kinds of services.
        option_names: Allowed parameters besides `model`.

    Raises:
        WrongSettings: The scheme is unknown, the host or the model is missing, or a parameter is unknown.
    """
    forms = " or ".join(URL_FORMS[kind] for kind in kinds)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongSettings(f"{setting}: invalid URL; use {forms}") from error
    kind, has_tls = _SCHEMES.get(parts.scheme, (None, False))
    if kind is None or kind not in kinds:
        raise WrongSettings(f"{setting}: unknown scheme {parts.scheme[:40]!r}; use {forms}")
    if not host:
        raise WrongSettings(f"{setting}: the host is missing; use {forms}")
    options = parse_options(parts.query, setting, option_names | {"model"})
    key = unquote(parts.password or parts.username or "")
    if key and parts.scheme == kind and not _is_private_host(host):
        raise WrongSettings(
            f"{setting}: the key would be sent to a public host without encryption; use {kind}+https://, or {kind}+http:// to allow it"
        )
    return ModelServiceUrl(
        kind=kind,
        origin=f"{'https' if has_tls else 'http'}://{_authority(host, port, kind)}",
        path=parts.path.rstrip("/") if kind == "openai" else "",
        key=Secret(key) if key else None,
        model=_parse_model_name(kind, parts, options.pop("model", ""), setting),
        options=options,
    )


def parse_options(query: str, setting: str, allowed_names: frozenset[str]) -> dict[str, str]:
    """Return the options of an address by name. Raises `WrongSettings` for a name that is not in *allowed_names*."""
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    unknown_options = sorted(options.keys() - allowed_names)
    if unknown_options:
        raise WrongSettings(f"{setting}: unknown option {unknown_options[0][:40]!r}; the options are {', '.join(sorted(allowed_names))}")
    return options


def _parse_model_name(kind: ModelServiceKind, parts: SplitResult, option: str, setting: str) -> str:
    name = option.strip() or ("" if kind == "openai" else unquote(parts.path).strip("/ "))
    if not name:
        raise WrongSettings(f"{setting}: the model is missing; use {URL_FORMS[kind]}")
    return name


def _authority(host: str, port: int | None, kind: ModelServiceKind) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    if port is None and kind == "ollama":
        port = _OLLAMA_PORT
    return bracketed if port is None else f"{bracketed}:{port}"


def _is_private_host(host: str) -> bool:
    """Return whether *host* is on this machine or its network: a private address, a name without a dot, or a local domain."""
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return not address.is_global
