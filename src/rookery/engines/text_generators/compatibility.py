"""
Features of a provider's models, learned from the requests that it rejects. No I/O.

Providers with OpenAI's protocol differ: some reject `stream_options`, some `response_format`, and new models of OpenAI reject `max_tokens`.
A request begins with everything. If it is rejected for one of them, it is sent again without that. Only the part that the rejection names
is dropped, and no value that a user chose. The form that succeeds is used for later requests to the same model, and that of a schema for
requests with the same schema. After an hour it is forgotten.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Literal

import orjson

from rookery.content.chat import ChatRequest, SchemaMode
from rookery.engines.text_generators.failures import ProviderFailure

MEMORY_S = 3600.0
"""Time after which a rejection is forgotten: a provider may be updated, or another one may be behind the same address."""

_MAX_FACTS = 4096
"""Facts about models that are stored; the oldest are dropped."""

_REJECTION_STATUSES = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses with which providers reject a field of a request."""


Part = Literal["usage_option", "schema", "token_limit", "temperature"]
"""A part of a request that can be left out, or sent in another form."""

_NAMES_BY_PART: Mapping[Part, tuple[str, ...]] = {
    "usage_option": ("stream_options", "stream options", "include_usage"),
    "schema": (
        *("response_format", "response format", "response_schema", "json_schema", "json schema", "json_object", "json mode", "schema"),
        *("structured output", "structured outputs", "guided_json", "grammar", "$ref", "$defs", "additionalproperties"),
        *("patternproperties", "propertynames", "anyof", "oneof", "allof", "prefixitems", "minlength", "maxlength", "minitems"),
        *("maxitems", "uniqueitems", "multipleof", "dependentrequired"),
    ),
    "token_limit": ("max_tokens", "max_completion_tokens"),
    "temperature": ("temperature",),
}
_PARTS: Mapping[str, Part] = {name: part for part, names in _NAMES_BY_PART.items() for name in names}
_OTHER_NAMES = frozenset(
    {
        *("contents", "content", "frequency_penalty", "logit_bias", "logprobs", "max_output_tokens", "messages", "min_p", "modalities"),
        *("model", "n", "parallel_tool_calls", "presence_penalty", "prompt", "reasoning_effort", "repetition_penalty", "role", "seed"),
        *("service_tier", "stop", "stream", "system", "tool_choice", "tools", "top_k", "top_logprobs", "top_p", "user"),
    }
)
"""Fields that a rejection may name, and that can be neither left out nor changed."""

_PLAIN_NAMES = sorted({*_PARTS, *(name for name in _OTHER_NAMES if "_" in name), "seed", "logprobs"}, key=len, reverse=True)
_NAME = re.compile(
    r"['\"`](?P<quoted>[A-Za-z_$][\w.$\[\]-]{0,99})['\"`]|\b(?:body|query)\.(?P<path>\w+)"
    rf"|(?<![\w.$])(?P<plain>{'|'.join(re.escape(name) for name in _PLAIN_NAMES)})(?!\w)",
    re.IGNORECASE,
)
"""Names in a message: quoted ones, those of a path, and plain ones that are no usual word."""

_STRUCTURE_NAMES = frozenset({"error", "message", "type", "param", "code", "detail", "loc", "msg", "status", "none", "null", "object"})
"""Quoted names of an error that is quoted whole."""

_UNKNOWN_WORDS = re.compile(
    r"unknown|unrecogni[sz]ed|unexpected|unsupported|not (?:supported|permitted|allowed|implemented|available)|instead|\buse\b"
    r"|extra (?:input|field)|additional propert",
    re.IGNORECASE,
)
_FIELD_WORDS = re.compile(r"parameter|argument|field|option|propert|input|feature|format|keyword", re.IGNORECASE)
_GENERIC_MESSAGE = re.compile(
    r"\W*(?:\d{3}\W+)?(?:bad request|invalid (?:request|parameter|argument)s?|unprocessable (?:entity|content)|not implemented)\W*",
    re.IGNORECASE,
)
"""A message that says no more than the status: a proxy may have dropped the words."""

_VALUE_WORDS = re.compile(
    r"too (?:large|small|high|low|big|long)|must be|at (?:most|least)|less than|greater than|exceed|maximum|minimum|between|out of range",
    re.IGNORECASE,
)
_LENGTH_WORDS = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|size|window)|maximum context|too many tokens"
    r"|(?:prompt|input) is too long",
    re.IGNORECASE,
)
"""The request is too long, whatever else the message names."""

_NEXT_MODE: dict[SchemaMode, SchemaMode] = {"json_schema": "json_object", "json_object": "prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeatures:
    """
    The optional parts of a request that a model of a provider accepts, as far as it is known.

    Attributes:
        accepts_temperature: An optional temperature is sent.
        begins_in_reasoning: Its answers have only the end of a block of reasoning.
    """

    accepts_usage_option: bool = True
    accepts_temperature: bool = True
    schema_mode: SchemaMode = "json_schema"
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    begins_in_reasoning: bool = False


_ALL_FEATURES = ModelFeatures()


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalParts:
    """The optional parts that a rejected request contained."""

    has_usage_option: bool
    has_schema: bool
    has_token_limit: bool
    has_optional_temperature: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """
    Fewer features for the next try.

    Attributes:
        is_named: The rejection names the part. Otherwise it is a guess, which counts only if the next try succeeds.
    """

    features: ModelFeatures
    part: Part
    is_named: bool


def reduce_features(features: ModelFeatures, parts: OptionalParts, failure: ProviderFailure, *, model: str) -> Reduction | None:
    """Return the features without the one that *failure* rejects; None if it rejects something else, or has no words."""
    words = f"{failure.message} {failure.code}"
    if failure.status not in _REJECTION_STATUSES | {HTTPStatus.INTERNAL_SERVER_ERROR} or _LENGTH_WORDS.search(words):
        return None
    part = find_named_part(failure, model=model)
    if part is not None:
        if part == "other" or (reduced := _drop(features, parts, part, failure)) is None:
            return None
        return Reduction(reduced, part, is_named=True)
    is_vague = _GENERIC_MESSAGE.fullmatch(failure.message) or (_UNKNOWN_WORDS.search(words) and _FIELD_WORDS.search(words))
    if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR or not failure.message or not is_vague:
        return None
    guesses: tuple[Part, ...] = ("usage_option", "schema")
    for guess in guesses:
        reduced = _drop(features, parts, guess, failure)
        if reduced is not None:
            return Reduction(reduced, guess, is_named=False)
    return None


def find_named_part(failure: ProviderFailure, *, model: str) -> Part | Literal["other"] | None:
    """Return the first part of a request that *failure* names; `other` if it names only something else, and None if it names nothing."""
    if failure.param:
        return _classify(failure.param) or "other"
    names_other = False
    for match in _NAME.finditer(failure.message):
        name = match["quoted"] or match["path"] or match["plain"]
        if name == model or name.lower() in _STRUCTURE_NAMES:
            continue
        part = _classify(name)
        if part is not None:
            return part
        names_other = True
    return "other" if names_other else None


def _classify(name: str) -> Part | Literal["other"] | None:
    """Return the part of a request to which *name* leads, such as `response_format.json_schema` or `body.messages[0]`."""
    segments = [segment for segment in re.split(r"[.\[\]]+", name.lower()) if segment]
    for segment in segments:
        if segment in _PARTS:
            return _PARTS[segment]
    return "other" if any(segment in _OTHER_NAMES for segment in segments) else None


def _drop(features: ModelFeatures, parts: OptionalParts, part: Part, failure: ProviderFailure) -> ModelFeatures | None:
    """Return *features* without *part*, or with its next form; None if the request does not have it, or there is no other form."""
    match part:
        case "usage_option":
            can_drop = parts.has_usage_option and features.accepts_usage_option
            return replace(features, accepts_usage_option=False) if can_drop else None
        case "temperature":
            can_drop = parts.has_optional_temperature and features.accepts_temperature
            return replace(features, accepts_temperature=False) if can_drop else None
        case "schema":
            mode = _NEXT_MODE.get(features.schema_mode) if parts.has_schema else None
            return None if mode is None else replace(features, schema_mode=mode)
        case "token_limit":
            is_value = (
                _VALUE_WORDS.search(failure.message) is not None or _UNKNOWN_WORDS.search(f"{failure.message} {failure.code}") is None
            )
            is_new_name = features.max_tokens_name == "max_completion_tokens"
            return (
                None if is_value or is_new_name or not parts.has_token_limit else replace(features, max_tokens_name="max_completion_tokens")
            )


class FeatureMemory:
    """
    The features that models lack, each until `MEMORY_S` after it was learned.

    Args:
        clock: Returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._facts: OrderedDict[tuple[str, str, bytes], tuple[object, float]] = OrderedDict()

    def get(self, request: ChatRequest) -> ModelFeatures:
        """Return the features of the model of *request*, with the mode of its schema; all of them if nothing is known."""
        if not self._facts:
            return _ALL_FEATURES
        names = ("accepts_usage_option", "accepts_temperature", "max_tokens_name", "begins_in_reasoning")
        keys = {name: (request.model, name, b"") for name in names}
        if request.response_schema is not None:
            keys["schema_mode"] = (request.model, "schema_mode", _hash_schema(request.response_schema))
        now_s = self._clock()
        values = {name: fact[0] for name, key in keys.items() if (fact := self._facts.get(key)) is not None and now_s < fact[1]}
        return replace(_ALL_FEATURES, **values) if values else _ALL_FEATURES

    def store(self, request: ChatRequest, features: ModelFeatures, part: Part) -> None:
        """Store that the model of *request* takes *part* only as *features* have it."""
        match part:
            case "usage_option":
                self._store(request.model, "accepts_usage_option", features.accepts_usage_option)
            case "temperature":
                self._store(request.model, "accepts_temperature", features.accepts_temperature)
            case "token_limit":
                self._store(request.model, "max_tokens_name", features.max_tokens_name)
            case "schema":
                if request.response_schema is not None:
                    self._store(request.model, "schema_mode", features.schema_mode, _hash_schema(request.response_schema))

    def store_reasoning(self, model: str, *, begins_in_reasoning: bool) -> None:
        """Store whether answers of *model* begin in a block of reasoning."""
        if begins_in_reasoning:
            self._store(model, "begins_in_reasoning", value=True)
        else:
            self._facts.pop((model, "begins_in_reasoning", b""), None)

    def _store(self, model: str, name: str, value: object, schema: bytes = b"") -> None:
        self._facts[model, name, schema] = (value, self._clock() + MEMORY_S)
        self._facts.move_to_end((model, name, schema))
        if len(self._facts) > _MAX_FACTS:
            self._facts.popitem(last=False)


def _hash_schema(schema: Mapping[str, object]) -> bytes:
    return hashlib.blake2b(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
