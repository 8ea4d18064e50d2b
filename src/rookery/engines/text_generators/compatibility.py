"""
Features of a provider's models, learned from the requests that it rejects. No I/O.

Providers with OpenAI's protocol differ: some reject `stream_options`, some `response_format`, and new models of OpenAI reject `max_tokens`.
A request begins with everything. If it is rejected for one of them, it is sent again without that. The form that succeeds is kept for
later requests to the same model, until the process ends.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal

from rookery.content.chat import SchemaMode
from rookery.engines.text_generators.replies import ProviderFailure

_MAX_MODELS = 256
"""Models whose features are kept; those of the model that was used the longest time ago are dropped."""

_REJECTION_STATUSES = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses with which providers reject a field of a request."""

_USAGE_WORDS = re.compile(r"stream_options|include_usage|stream options", re.IGNORECASE)
_SCHEMA_WORDS = re.compile(r"response_format|response format|json_schema|json_object|json schema|structured output|grammar", re.IGNORECASE)
_TOKEN_LIMIT_WORDS = re.compile(r"max_completion_tokens", re.IGNORECASE)
_INVALID_SCHEMA_WORDS = re.compile(
    r"invalid schema|schema conversion|grammar|unsupported schema|failed to (?:parse|compile)", re.IGNORECASE
)
"""A problem of this schema, which says nothing about others."""

_UNKNOWN_FIELD_WORDS = re.compile(
    r"unknown|unrecogni[sz]ed|unexpected|unsupported|not (?:supported|permitted|allowed|implemented)"
    r"|extra (?:input|field)|additional propert|bad request|invalid (?:request|parameter)s?\W*$",
    re.IGNORECASE,
)

_NEXT_MODE: dict[SchemaMode, SchemaMode] = {"json_schema": "json_object", "json_object": "prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeatures:
    """The optional parts of a request that a model of a provider accepts, as far as it is known."""

    accepts_usage_option: bool = True
    schema_mode: SchemaMode = "json_schema"
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalParts:
    """The optional parts that a rejected request contained."""

    has_usage_option: bool
    has_schema: bool
    has_token_limit: bool


@dataclass(frozen=True, slots=True)
class Reduction:
    """Fewer features for the next try; *is_lasting*: if it succeeds, they hold for all requests to the model."""

    features: ModelFeatures
    is_lasting: bool = True


def reduce_features(features: ModelFeatures, parts: OptionalParts, failure: ProviderFailure) -> Reduction | None:
    """Return the features without the one that *failure* rejects; None if it rejects something else."""
    if failure.status not in _REJECTION_STATUSES:
        return None
    words = f"{failure.message} {failure.param} {failure.code}"
    next_mode = _NEXT_MODE.get(features.schema_mode)
    can_drop_usage = parts.has_usage_option and features.accepts_usage_option
    can_drop_schema = parts.has_schema and next_mode is not None
    if parts.has_token_limit and features.max_tokens_name == "max_tokens" and _TOKEN_LIMIT_WORDS.search(words):
        return Reduction(replace(features, max_tokens_name="max_completion_tokens"))
    if can_drop_usage and _USAGE_WORDS.search(words):
        return Reduction(replace(features, accepts_usage_option=False))
    if can_drop_schema and next_mode and _SCHEMA_WORDS.search(words):
        return Reduction(replace(features, schema_mode=next_mode), is_lasting=not _INVALID_SCHEMA_WORDS.search(words))
    if not words.strip() or _UNKNOWN_FIELD_WORDS.search(words):
        if can_drop_usage:
            return Reduction(replace(features, accepts_usage_option=False))
        if can_drop_schema and next_mode:
            return Reduction(replace(features, schema_mode=next_mode))
    return None


class FeatureMemory:
    """The features of each model that are known to differ from the usual ones."""

    def __init__(self) -> None:
        self._features: OrderedDict[str, ModelFeatures] = OrderedDict()

    def get(self, model: str) -> ModelFeatures:
        """Return the features of *model*; all of them if nothing is known."""
        return self._features.get(model, ModelFeatures())

    def store(self, model: str, features: ModelFeatures) -> None:
        """Store the features of *model*."""
        self._features[model] = features
        self._features.move_to_end(model)
        if len(self._features) > _MAX_MODELS:
            self._features.popitem(last=False)
