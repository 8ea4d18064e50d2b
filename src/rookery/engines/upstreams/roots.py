"""
Roots: the folders that a server may work in, announced by its client (`roots/list` of the protocol).

Servers replace their own folders by the roots of their client, so a caller's roots move the sandbox of everyone in the session.
Announce the roots that the server's entry gives, or none; announce a caller's only if the entry says `"roots": "caller"`, which
demands a session per key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias, cast

import mcp_types as types
import orjson

from rookery.tools.errors import UpstreamErrorResponse
from rookery.tools.models import JsonObject, Root, Roots

ROOTS_METHOD = "roots/list"
ROOTS_CAPABILITY = "roots"

_STATE_PREFIX = "rookery-roots:"
"""Marks a `requestState` that also names the input requests that Rookery answers itself."""

_Responses: TypeAlias = Mapping[str, object]


def build_list_result(roots: tuple[Root, ...]) -> types.ListRootsResult:
    """Return the protocol's answer to `roots/list`."""
    return types.ListRootsResult.model_validate({"roots": [_to_json(root) for root in roots]}, by_name=False)


def set_roots_capability(capabilities: JsonObject, roots: Roots) -> JsonObject:
    """Return *capabilities* of a caller's client with the roots capability that the server may see."""
    if isinstance(roots, str):
        return capabilities
    others = {name: value for name, value in capabilities.items() if name != ROOTS_CAPABILITY}
    return {**others, ROOTS_CAPABILITY: {}} if roots else others


def add_own_answers(params: JsonObject, roots: Roots) -> None:
    """
    Replace the results about roots in *params* by the roots of the entry (protocol 2026-07-28).

    Callers can send `inputResponses` that no server requested, so responses with roots are removed.
    """
    if isinstance(roots, str):
        return
    input_responses = params.get("inputResponses")
    responses = (
        {name: response for name, response in cast("_Responses", input_responses).items() if not _has_roots(response)}
        if isinstance(input_responses, Mapping)
        else {}
    )
    state = params.get("requestState")
    if isinstance(state, str) and state.startswith(_STATE_PREFIX):
        names, state = _decode_state(state)
        responses |= {name: _answer(roots) for name in names}
        params.pop("requestState")
        if state is not None:
            params["requestState"] = state
    if input_responses is not None or responses:
        params["inputResponses"] = responses


def split_requests(result: JsonObject, roots: Roots) -> tuple[JsonObject, JsonObject | None]:
    """
    Return *result* without its requests for roots, and the responses to send at once if it has no other requests.

    Raises:
        UpstreamErrorResponse: The server requests roots although none were announced.
    """
    input_requests = result.get("inputRequests")
    if isinstance(roots, str) or result.get("resultType") != "input_required" or not isinstance(input_requests, dict):
        return result, None
    requests = cast("dict[str, object]", input_requests)
    names = [
        name
        for name, request in requests.items()
        if isinstance(request, dict) and cast("JsonObject", request).get("method") == ROOTS_METHOD
    ]
    if not names:
        return result, None
    if not roots:
        raise UpstreamErrorResponse(types.INVALID_REQUEST, 'The server requests roots, but its entry has none ("roots" in servers.json).')
    others = {name: request for name, request in requests.items() if name not in names}
    if not others:
        return result, {name: _answer(roots) for name in names}
    state = result.get("requestState")
    return {**result, "inputRequests": others, "requestState": _encode_state(names, state if isinstance(state, str) else None)}, None


def _to_json(root: Root) -> JsonObject:
    return {"uri": root.uri} if root.name is None else {"uri": root.uri, "name": root.name}


def _answer(roots: tuple[Root, ...]) -> JsonObject:
    return {"roots": [_to_json(root) for root in roots]}


def _has_roots(response: object) -> bool:
    return isinstance(response, Mapping) and "roots" in response


def _encode_state(names: list[str], state: str | None) -> str:
    return _STATE_PREFIX + json.dumps([names, state])


def _decode_state(state: str) -> tuple[list[str], str | None]:
    """
    Decode a state of `_encode_state`.

    Raises:
        UpstreamErrorResponse: The state is invalid: a caller changed it.
    """
    try:
        names, inner_state = orjson.loads(state.removeprefix(_STATE_PREFIX))
    except (ValueError, TypeError):
        raise UpstreamErrorResponse(types.INVALID_PARAMS, "The requestState is not the one that was returned.") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[object]", names)):
        raise UpstreamErrorResponse(types.INVALID_PARAMS, "The requestState is not the one that was returned.")
    return cast("list[str]", names), inner_state if isinstance(inner_state, str) else None
