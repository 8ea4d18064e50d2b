"""The port of language models, which an engine implements."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rookery.content.chat import ChatMessage, ChatRequest, Completion, Delta
from rookery.kernel.db import Tx


class TextGenerator(Protocol):
    """
    A language model that answers conversations.

    All methods are safe for concurrent use. Every wait is bounded: for a connection, for the first byte, between bytes, and in total by
    the request's `timeout_s`. A caller that is cancelled, or that closes its stream, closes the provider's connection.
    """

    @property
    def model(self) -> str:
        """The model of the address, for requests that name none."""
        ...

    async def complete(self, request: ChatRequest) -> Completion:
        """
        Return the model's answer.

        Failures that may pass (no connection, 408, 409, 429, 5xx) are retried within bounds and as `Retry-After` says. An answer that does
        not match `response_schema` is requested again at most twice, with the error as a further message.

        Raises:
            ProviderUnavailable: No connection, a time-out, or a failure of the provider after all retries.
            ProviderRateLimited: 429 after all retries.
            ProviderRefused: The provider rejects the request. `ProviderAccessDenied`: it rejects the operator's key.
            ProviderResponseInvalid: The answer is no chat completion, or it is empty.
            ResponseSchemaMismatch: No attempt matched `response_schema`.
            ValidationFailed: `response_schema` is no JSON schema.
        """
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Completion]:
        """
        Yield the pieces of the answer and of its reasoning as they arrive, then exactly one `Completion`.

        Its text is all pieces of the answer together, unless only the end of the answer shows that its start was reasoning.

        Nothing is requested again after the first piece. So an answer with a schema has one attempt, which is validated at its end.

        Raises:
            StreamInterrupted: The answer ended in the middle.
            ProviderError: As `complete`.
        """
        ...

    async def probe(self) -> None:
        """
        Check that the provider answers and accepts the key, without generating text.

        Raises:
            EngineUnavailable: It does not answer, or rejects the key.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Running completions fail with `ProviderUnavailable`. Idempotent."""
        ...


class FindKeyNames(Protocol):
    """Returns the names of keys of a tenant. The domain of access implements it."""

    def __call__(self, tx: Tx, tenant_id: int, key_ids: Sequence[str], /) -> Mapping[str, str]:
        """Return the names of those of *key_ids* whose requests belong to the tenant *tenant_id*, by id."""
        ...


class OutputScorer(Protocol):
    """Scores the output of a generation. The domain of scoring implements it."""

    async def score_output(self, workspace_id: int, messages: Sequence[ChatMessage], output: str) -> Mapping[str, object]:
        """Return the scores of *output* as the answer to *messages*, as `POST /v1/score/content` returns them. Nothing is stored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPorts:
    """
    The implementations that content gets from engines and from access.

    Attributes:
        provider: The language model of the settings; None: no provider is set.
        canned: The fixed texts for test keys.
        open_output_scorer: Returns the scorer of outputs.
    """

    provider: TextGenerator | None
    canned: TextGenerator
    find_key_names: FindKeyNames
    open_output_scorer: Callable[[], OutputScorer]
