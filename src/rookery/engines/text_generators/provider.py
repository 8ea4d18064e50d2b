"""The address of a provider with OpenAI's `/chat/completions`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.kernel.model_service_urls import GENERATION_KINDS, parse_model_service_url
from rookery.kernel.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """
    A provider and its default model.

    Attributes:
        base_url: The URL without `/chat/completions` and without a slash at its end.
    """

    base_url: str
    key: Secret | None
    model: str


def parse_url(url: str, *, setting: str) -> Provider:
    """
    Return the provider at *url*. Ollama's has the same protocol under `/v1`.

    Raises:
        WrongSettings: *url* is invalid. The message contains the name of *setting*, never its value.
    """
    service = parse_model_service_url(url, setting=setting, kinds=GENERATION_KINDS)
    path = service.path.removesuffix("/chat/completions") or "/v1"
    return Provider(base_url=service.origin + path, key=service.key, model=service.model)
