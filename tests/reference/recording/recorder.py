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
        cut: Callable[[Json], object] = lambda answer: answer,
        **path: object,
    ) -> Json:
        """
        Send a request, keep it with its answer, and return the answer's JSON (empty, if it is something else).

        Args:
            operation: Method and path, as the document has them.
            form: The body, if it is a form.
            status: What is answered, if it is no success.
            cut: What is kept of an answer that is too long for an example.
            path: Its parameters, by the document's names.
        """
        method, _, address = operation.partition(" ")
        for name, value in path.items():
            address = address.replace("{" + name + "}", quote(str(value), safe=""))
        assert "{" not in address, address
        self.clock.advance(seconds=1)
        answer = await _send_request(caller, (method, address), body=body, query=query, headers=headers or {}, form=form)
        good = answer.status_code == status if status else answer.is_success
        assert good, f"{operation}: {answer.status_code} {answer.text[:500]}"
        return self._record(operation, answer, body=body, form=form, query=query, path=path, cut=cut)

    def _record(
        self,
        operation: str,
        answer: httpx2.Response,
        *,
        body: object,
        form: Mapping[str, str] | None,
        query: Mapping[str, object] | None,
        path: Mapping[str, object],
        cut: Callable[[Json], object],
    ) -> Json:
        kept: Schema = {"path": dict(path), "query": dict(query or {}), "body": body, "status": answer.status_code}
        if form is not None:
            kept["body"] = dict(form)
        is_json = answer.headers.get("content-type", "").partition(";")[0].endswith(_JSON)
        said = cast("Json", answer.json()) if is_json and answer.content else {}
        if is_json:
            kept["answer"] = shorten(cut(said))
        elif answer.content:
            kept["answer"] = _first_lines(answer.text)
        self._add_operation(operation, {name: each for name, each in kept.items() if each not in ({}, None)})
        return said

    def _add_operation(self, operation: str, kept: Schema) -> None:
        if operation not in self.operations:
            plain = {
                name: self._normalizer.normalize_response(each) if name == "answer" else self._normalizer.normalize_request(each)
                for name, each in kept.items()
            }
            self.operations[operation] = plain


def _first_lines(text: str) -> str:
    """Return the first lines of a text; of a page up to its title."""
    lines = text.splitlines()
    end = next((number for number, line in enumerate(lines, 1) if line.startswith("<title>")), _MAX_LINES)
    return "\n".join(lines[:end])


async def _send_request(
    caller: Caller,
    where: tuple[str, str],
    *,
    body: object,
    query: Mapping[str, object] | None,
    headers: Mapping[str, str],
    form: Mapping[str, str] | None,
) -> httpx2.Response:
    params = None if query is None else {name: str(value) for name, value in query.items()}
    if form is not None:
        return await caller.http.request(*where, data=dict(form), headers=headers)
    if body is None:
        return await caller.http.request(*where, params=params, headers=headers)
    return await caller.http.request(*where, params=params, json=body, headers=headers)


def first_operation(document: Json) -> Json:
    """Return an OpenAPI document cut to its first operation, and that to its name: what is in the rest is not for an example."""
    path, methods = next(iter(cast("dict[str, dict[str, Json]]", document["paths"]).items()))
    method, operation = next(iter(methods.items()))
    short = {name: operation[name] for name in ("operationId", "summary") if name in operation}
    return {"openapi": document["openapi"], "info": document["info"], "paths": {path: {method: short}}}
