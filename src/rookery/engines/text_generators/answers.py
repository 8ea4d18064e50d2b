"""Completions from the replies of a provider. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rookery.content.chat import ChatMessage, ChatRequest, Completion, SchemaMode, TokenUsage, estimate_input_tokens, estimate_tokens
from rookery.content.errors import ProviderResponseInvalid, ResponseSchemaMismatch
from rookery.content.response_schema import AnswerMismatch, ResponseSchema
from rookery.engines.text_generators.failures import MAX_EXCERPT_CHARS
from rookery.engines.text_generators.reasoning import SplitAnswer, split_reasoning
from rookery.engines.text_generators.replies import ChatReply
from rookery.engines.text_generators.usage import compute_usage

_CUT_FINISH_REASONS = frozenset({"length", "max_tokens"})


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
        """Return the usage that the provider bills, and an estimate of what it does not report."""
        reported = reply.usage
        if reported is not None and reported.input_tokens and reported.output_tokens:
            return compute_usage(reported, estimate=_NO_ESTIMATE)
        reasoning = estimate_tokens(reply.reasoning)
        estimate = TokenUsage(
            input_tokens=estimate_input_tokens(self.messages),
            output_tokens=estimate_tokens(reply.text) + reasoning,
            reasoning_tokens=reasoning,
            is_estimated=True,
        )
        return compute_usage(reported, estimate=estimate)

    def split(self, reply: ChatReply) -> SplitAnswer:
        """Return the answer of a whole *reply* and its reasoning, from its field or from the text."""
        split = split_reasoning(reply.text, is_cut=is_cut(reply.finish_reason))
        return split if not reply.reasoning else replace(split, reasoning=_join(reply.reasoning, split.reasoning))

    def build_completion(self, reply: ChatReply, answer: SplitAnswer) -> Completion:
        """
        Return the completion of *reply*, whose parts are *answer*.

        Raises:
            ProviderResponseInvalid: It has no text.
        """
        usage = self.compute_usage(reply)
        text, reasoning = answer.text, answer.reasoning.strip()
        if not text.strip():
            text = self._find_answer_in_reasoning(reasoning)
            reasoning = "" if text == reasoning else reasoning
            if not text:
                raise ProviderResponseInvalid(_describe_empty(reply, reasoning), excerpt=reply.refusal[:MAX_EXCERPT_CHARS], usage=usage)
        return Completion(
            text=text,
            finish_reason=reply.finish_reason,
            usage=usage,
            model=reply.model or self.request.model,
            schema_mode=self.schema_mode,
            reasoning=reasoning,
        )

    def _find_answer_in_reasoning(self, reasoning: str) -> str:
        """Return the JSON that a provider has put into the reasoning in place of the content, as some do with a schema; else nothing."""
        if self.request.response_schema is None or not reasoning:
            return ""
        try:
            return ResponseSchema(self.request.response_schema).extract(reasoning)
        except AnswerMismatch:
            return ""


_NO_ESTIMATE = TokenUsage(input_tokens=0, output_tokens=0)


def _join(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def is_cut(finish_reason: str | None) -> bool:
    """Return whether the answer ended because the model had reached its maximum of tokens."""
    return finish_reason is not None and finish_reason.lower() in _CUT_FINISH_REASONS


def build_mismatch_error(completion: Completion, mismatch: AnswerMismatch) -> ResponseSchemaMismatch:
    """Return the error for *completion*, which does not match its schema."""
    reason = str(mismatch)
    if is_cut(completion.finish_reason):
        reason += "; it was cut at its maximum of tokens, so max_tokens may be too small"
    return ResponseSchemaMismatch(reason, excerpt=completion.text[:MAX_EXCERPT_CHARS], attempts=completion.attempts, usage=completion.usage)


def _describe_empty(reply: ChatReply, reasoning: str) -> str:
    if reply.refusal:
        return "the model declines to answer"
    emptiness = "it has reasoning and no answer" if reasoning else "it is empty"
    if is_cut(reply.finish_reason):
        return f"{emptiness} and was cut at its maximum of tokens, so max_tokens may be too small"
    return "the provider's content filter removed it" if reply.finish_reason == "content_filter" else emptiness
