"""
Errors of content generation.

    NotFound (kernel)                  404  resource_not_found            generation, batch, template
    ValidationFailed (kernel)          422  validation_error              a template, a schema or a parameter is invalid
    RookeryError
    ├── GenerationNotConfigured        503  generation_not_configured
    ├── BudgetExhausted                429  budget_exhausted              less is left of a budget than the call may cost
    ├── GenerationQueueFull            429  generation_queue_full
    ├── ModelNotPriced                 422  model_not_priced              a budget applies, and the model has no price
    ├── GenerationCancelled (Conflict) 409  generation_cancelled          cancelled while its caller waited
    ├── PromptTemplateExists (Conflict) 409 slug_taken
    └── ProviderError
        ├── ProviderUnavailable        503  provider_unavailable          no connection, a time-out, or a 5xx after all retries
        │   └── StreamInterrupted      502  stream_interrupted            the answer ended in the middle
        ├── ProviderRateLimited        503  provider_rate_limited         429 after all retries
        ├── ProviderRefused            422  provider_refused              the provider rejects the request
        │   └── ProviderAccessDenied   502  provider_access_denied        the provider rejects the key of the operator
        ├── ProviderResponseInvalid    502  provider_response_invalid     the answer is no chat completion
        └── ResponseSchemaMismatch     502  response_schema_mismatch      no attempt matched the schema
"""

from __future__ import annotations

from typing import Literal

from rookery.content.chat import NO_USAGE, TokenUsage
from rookery.kernel.errors import Conflict, RookeryError
from rookery.kernel.money import format_money
from rookery.kernel.sentences import format_count

DEFAULT_RETRY_AFTER_S = 5


class GenerationNotConfigured(RookeryError):
    """The operator has not set `ROOKERY_GENERATION`."""

    status, code = 503, "generation_not_configured"

    def __init__(self) -> None:
        super().__init__("Content generation is not configured. The operator sets ROOKERY_GENERATION to the address of a provider.")


class ProviderError(RookeryError):
    """
    A completion failed at the provider.

    Attributes:
        usage: Tokens that the attempts used before the failure. The provider may charge for them.
    """

    is_upstream = True

    def __init__(self, message: str, *, usage: TokenUsage = NO_USAGE, retry_after_s: int | None = None, **detail: object) -> None:
        headers = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(message, headers=headers, **detail)
        self.usage = usage


class ProviderUnavailable(ProviderError):
    """No connection to the provider, a time-out, or a 5xx after all retries."""

    status, code = 503, "provider_unavailable"
    fields = "`provider_status`, if it answered; header `Retry-After`"

    def __init__(self, reason: str, *, usage: TokenUsage = NO_USAGE, retry_after_s: int = DEFAULT_RETRY_AFTER_S, **detail: object) -> None:
        super().__init__(f"The language model is unavailable: {reason}", usage=usage, retry_after_s=retry_after_s, **detail)


class StreamInterrupted(ProviderUnavailable):
    """The provider's answer ended in the middle. It is not requested again."""

    status, code = 502, "stream_interrupted"
    fields = "`received_chars`; header `Retry-After`"

    def __init__(self, reason: str, *, received_chars: int, usage: TokenUsage) -> None:
        super().__init__(
            f"{reason}, after {format_count(received_chars, 'character')} of the answer", usage=usage, received_chars=received_chars
        )


class ProviderRateLimited(ProviderError):
    """The provider still answered 429 after all retries."""

    status, code = 503, "provider_rate_limited"
    fields = "`provider_status`, `provider_message`; header `Retry-After`"

    def __init__(self, provider_message: str, *, retry_after_s: int = DEFAULT_RETRY_AFTER_S) -> None:
        super().__init__(
            f"The language model's provider limits the rate of requests: {provider_message}",
            retry_after_s=retry_after_s,
            provider_status=429,
            provider_message=provider_message,
        )


class ProviderRefused(ProviderError):
    """The provider of the language model rejects the request, for example because it is too long for the model."""

    status, code = 422, "provider_refused"
    fields = "`provider_status`, `provider_message`: its own words"

    def __init__(self, provider_status: int, provider_message: str) -> None:
        super().__init__(
            f"The language model's provider rejected the request with status {provider_status}: {provider_message}",
            provider_status=provider_status,
            provider_message=provider_message,
        )


class ProviderAccessDenied(ProviderRefused):
    """The provider of the language model rejects the key or the account of the operator."""

    status, code = 502, "provider_access_denied"
    fields = "`provider_status`, `provider_message`"


class ProviderResponseInvalid(ProviderError):
    """The provider's answer is no chat completion, or is empty. It is not requested again."""

    status, code = 502, "provider_response_invalid"
    fields = "`excerpt`: its start"

    def __init__(self, reason: str, *, excerpt: str = "", usage: TokenUsage = NO_USAGE) -> None:
        super().__init__(f"The language model's provider sent an invalid answer: {reason}", usage=usage, excerpt=excerpt)


class ResponseSchemaMismatch(ProviderError):
    """No answer of the language model matched the JSON schema of the request."""

    status, code = 502, "response_schema_mismatch"
    fields = "`mismatch`; `excerpt`: the start of the last answer; `attempts`"

    def __init__(self, mismatch: str, *, excerpt: str, attempts: int, usage: TokenUsage) -> None:
        number = format_count(attempts, "attempt")
        super().__init__(
            f"The language model's answer does not match the schema after {number}: {mismatch}",
            usage=usage,
            mismatch=mismatch,
            excerpt=excerpt,
            attempts=attempts,
        )


class GenerationError(RookeryError):
    """A call failed because of an error in Rookery."""


class BudgetExhausted(RookeryError):
    """Less is left of the daily or monthly budget of the key or of the workspace than the generation may cost."""

    status, code = 429, "budget_exhausted"
    fields = (
        "`budget`: `key` or `workspace`; `period`: `day` or `month`; the limit as `daily` or `monthly`, `left`, `needed`, in "
        "`currency`; `resets_at`; header `Retry-After`"
    )

    def __init__(
        self,
        *,
        budget: Literal["workspace", "key"],
        period: Literal["day", "month"],
        limit: float,
        left: float,
        needed: float,
        currency: str,
        resets_at: str,
        retry_after_s: int,
    ) -> None:
        name = "daily" if period == "day" else "monthly"
        advice = "Lower max_tokens, or let the owner of the budget raise it" if needed > limit else f"It starts again at {resets_at}"
        amounts = [format_money(amount, currency) for amount in (needed, left, limit)]
        super().__init__(
            f"The call may cost {amounts[0]}, and {amounts[1]} is left of the {name} budget of {amounts[2]} of this {budget}. {advice}.",
            headers={"Retry-After": str(retry_after_s)},
            budget=budget,
            period=period,
            left=left,
            needed=needed,
            currency=currency,
            resets_at=resets_at,
            **{name: limit},
        )


class GenerationQueueFull(RookeryError):
    """10,000 generations of the workspace wait or run."""

    status, code = 429, "generation_queue_full"
    fields = "`limit`; header `Retry-After`"

    def __init__(self, limit: int) -> None:
        message = f"This workspace would have more than {limit:,} queued generations. Wait until some of them are finished."
        super().__init__(message, headers={"Retry-After": "60"}, limit=limit)


class ModelNotPriced(RookeryError):
    """A budget applies to the generation, and its model has no price in `ROOKERY_GENERATION_PRICES`."""

    status, code = 422, "model_not_priced"
    fields = "`model`"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model {model!r} has no price, so a budget cannot cover it. Use another model, or the operator adds its price to "
            "ROOKERY_GENERATION_PRICES; *=… there is the price of all others.",
            model=model,
        )


class GenerationCancelled(Conflict):
    """The generation was cancelled while its caller waited for the answer."""

    code = "generation_cancelled"
    fields = "`generation_id`"

    def __init__(self, generation_id: str) -> None:
        super().__init__("The generation was cancelled before its answer was complete.", generation_id=generation_id)


class PromptTemplateExists(Conflict):
    """The slug is in use by another prompt template."""

    code = "slug_taken"

    def __init__(self, slug: str) -> None:
        super().__init__(f"There is a prompt template {slug!r} already. Change it with PUT, or choose another slug.", slug=slug)


START_ERRORS = (GenerationNotConfigured, BudgetExhausted, ModelNotPriced)
"""The errors before a call is sent."""

PROVIDER_ERRORS = (
    *(ProviderUnavailable, ProviderRateLimited, ProviderRefused, ProviderAccessDenied, ProviderResponseInvalid),
    ResponseSchemaMismatch,
)
"""The errors of a call."""
