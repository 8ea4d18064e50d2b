"""The recorder of the story's requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote

import httpx2

from rookery.reference.downgrade import Schema
from tests.conftest import Caller, FakeClock, Instance
from tests.reference.recording.normalizer import Normalizer, shorten

Json = dict[str, object]

_MAX_LINES = 12
_JSON = ("application/json", "+json")


@dataclass
class Recorder:
    """
    The recorded requests of one part of the story, by operation; the first request of an operation is kept.

    Attributes:
        instance: The server.
        clock: Its clock; it advances by a second before each request.
        upstream: The address of a tool server with a login.
        receiver: The address of a receiver of webhooks.
    """

    instance: Instance
    clock: FakeClock
    upstream: str = ""
    receiver: str = ""
    operations: dict[str, Schema] = field(default_factory=dict[str, Schema])
    _normalizer: Normalizer = field(default_factory=Normalizer)

    async def send(
        self,
        caller: Caller,
        operation: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        status: int | None = None,
        shorten_response: Callable[[Json], object] = lambda response: response,
        **path: object,
    ) -> Json:
        """
        Send a request, record it with its response, and return the JSON of the response (empty for other types).

        Args:
            operation: Method and path as in the document.
            form: The body, if it is a form.
            status: The expected status, if it is not a success.
            shorten_response: Reduces a response that is too long for an example.
            path: Path parameters, by their names in the document.
        """
        method, _, url_path = operation.partition(" ")
        for name, value in path.items():
            url_path = url_path.replace("{" + name + "}", quote(str(value), safe=""))
        assert "{" not in url_path, url_path
        self.clock.advance(seconds=1)
        response = await _send_request(caller, (method, url_path), body=body, query=query, headers=headers or {}, form=form)
        is_expected = response.status_code == status if status else response.is_success
        assert is_expected, f"{operation}: {response.status_code} {response.text[:500]}"
        return self._record(operation, response, body=body, form=form, query=query, path=path, shorten_response=shorten_response)

    def _record(
        self,
        operation: str,
        response: httpx2.Response,
        *,
        body: object,
        form: Mapping[str, str] | None,
        query: Mapping[str, object] | None,
        path: Mapping[str, object],
        shorten_response: Callable[[Json], object],
    ) -> Json:
        example: Schema = {"path": dict(path), "query": dict(query or {}), "body": body, "status": response.status_code}
        if form is not None:
            example["body"] = dict(form)
        is_json = response.headers.get("content-type", "").partition(";")[0].endswith(_JSON)
        response_json = cast("Json", response.json()) if is_json and response.content else {}
        if is_json:
            example["answer"] = shorten(shorten_response(response_json))
        elif response.content:
            example["answer"] = _first_lines(response.text)
        self._add_operation(operation, {name: value for name, value in example.items() if value not in ({}, None)})
        return response_json

    def _add_operation(self, operation: str, example: Schema) -> None:
        if operation not in self.operations:
            normalized = {
                name: self._normalizer.normalize_response(value) if name == "answer" else self._normalizer.normalize_request(value)
                for name, value in example.items()
            }
            self.operations[operation] = normalized


def _first_lines(text: str) -> str:
    """Return the first lines of a text; of a page up to its title."""
    lines = text.splitlines()
    end = next((number for number, line in enumerate(lines, 1) if line.startswith("<title>")), _MAX_LINES)
    return "\n".join(lines[:end])


async def _send_request(
    caller: Caller,
    method_and_path: tuple[str, str],
    *,
    body: object,
    query: Mapping[str, object] | None,
    headers: Mapping[str, str],
    form: Mapping[str, str] | None,
) -> httpx2.Response:
    params = None if query is None else {name: str(value) for name, value in query.items()}
    if form is not None:
        return await caller.http.request(*method_and_path, data=dict(form), headers=headers)
    if body is None:
        return await caller.http.request(*method_and_path, params=params, headers=headers)
    return await caller.http.request(*method_and_path, params=params, json=body, headers=headers)


def first_operation(document: Json) -> Json:
    """Return an OpenAPI document cut to its first operation, and that to its name and summary."""
    path, methods = next(iter(cast("dict[str, dict[str, Json]]", document["paths"]).items()))
    method, operation = next(iter(methods.items()))
    short = {name: operation[name] for name in ("operationId", "summary") if name in operation}
    return {"openapi": document["openapi"], "info": document["info"], "paths": {path: {method: short}}}
