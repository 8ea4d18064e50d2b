"""Completions from the replies of a provider. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.content.chat import ChatMessage, ChatRequest, Completion, SchemaMode, TokenUsage, estimate_input_tokens, estimate_tokens
from rookery.content.errors import ProviderResponseInvalid, ResponseSchemaMismatch
from rookery.content.response_schema import AnswerMismatch
from rookery.engines.text_generators.replies import MAX_EXCERPT_CHARS, ChatReply

CUT_FINISH_REASON = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """
    A request as it was accepted.

    Attributes:
        messages: Its messages, with the schema if that is in the prompt.
    """

    request: ChatRequest
    messages: tuple[ChatMessage, ...]
    schema_mode: SchemaMode | None

    def compute_usage(self, reply: ChatReply) -> TokenUsage:
        """Return the usage that the provider reports, else an estimate."""
        if reply.usage is not None:
            return reply.usage
        return TokenUsage(input_tokens=estimate_input_tokens(self.messages), output_tokens=estimate_tokens(reply.text), is_estimated=True)

    def build_completion(self, reply: ChatReply) -> Completion:
        """
        Return the completion of *reply*.

        Raises:
            ProviderResponseInvalid: It has no text.
        """
        usage = self.compute_usage(reply)
        if not reply.text.strip():
            raise ProviderResponseInvalid(_describe_empty(reply), excerpt=reply.refusal[:MAX_EXCERPT_CHARS], usage=usage)
        return Completion(
            text=reply.text,
            finish_reason=reply.finish_reason,
            usage=usage,
            model=reply.model or self.request.model,
            schema_mode=self.schema_mode,
        )


def build_mismatch_error(completion: Completion, mismatch: AnswerMismatch) -> ResponseSchemaMismatch:
    """Return the error for *completion*, which does not match its schema."""
    reason = str(mismatch)
    if completion.finish_reason == CUT_FINISH_REASON:
        reason += "; it was cut at its maximum of tokens, so max_tokens may be too small"
    return ResponseSchemaMismatch(reason, excerpt=completion.text[:MAX_EXCERPT_CHARS], attempts=completion.attempts, usage=completion.usage)


def _describe_empty(reply: ChatReply) -> str:
    if reply.refusal:
        return "the model declines to answer"
    match reply.finish_reason:
        case "length":
            return "it is empty and was cut at its maximum of tokens, so max_tokens may be too small"
        case "content_filter":
            return "the provider's content filter removed it"
        case _:
            return "it is empty"
