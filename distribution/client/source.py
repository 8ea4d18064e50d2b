"""Python source of the generated modules."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from distribution.client.operations import Argument, Method
from distribution.client.types import Schema, TypeWriter, to_attribute
from rookery_client.client_errors import get_status_class

_WIDTH = 140
_MIN_SHARED_FIELDS = 10
_KEY_DESCRIPTION = (
    "A text of your choice, the same for each repetition of this request, also after a restart. By default, each call has its own."
)

_HEADER = '''"""
{title}

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations
{imports}
'''

_MODELS_IMPORTS = """
from datetime import date, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

class Model(BaseModel):
    \"\"\"A part of a response. Fields that are unknown here are kept (`model_extra`), so that a newer server may send more.\"\"\"

    model_config = ConfigDict(extra="allow", populate_by_name=True, defer_build=True, protected_namespaces=())
"""

_INPUTS_IMPORTS = """
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Literal, Required, TypedDict
"""

_GROUP_IMPORTS = """
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import date, datetime
from typing import Literal

from httpx2 import EventSource

from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session
"""


def write_models(components: Mapping[str, Schema], names: Iterable[str]) -> str:
    """Return the source of the models *names*, and of those that they contain. A model with all fields of another one is its subclass."""
    writer = TypeWriter(components, is_input=False)
    writer.used.update(dict.fromkeys(names))
    fields = {name: tuple(_write_model_fields(components[name], writer)) for name in _follow(writer)}
    bases = {name: _find_base(name, fields) for name in fields}
    # A model has more fields than its base, so bases come first.
    order = sorted(fields, key=lambda name: (len(fields[name]) if name in bases.values() or bases[name] else 0, name))
    blocks = list[str]()
    for name in order:
        base = bases[name]
        own = [field for field in fields[name] if base is None or field not in fields[base]]
        lines = [_docstring(components[name], name), *(["", *own] if own else [])]
        blocks.append(f"class {name}({base or 'Model'}):\n{_indent(lines)}")
    return _join(_HEADER.format(title="Models of responses.", imports=_MODELS_IMPORTS), [*blocks, _write_all(order)])


def _find_base(name: str, fields: Mapping[str, Sequence[str]]) -> str | None:
    """Return the largest model all of whose fields the model *name* has, with the same types. Small ones are alike by chance."""
    candidates = [
        (len(others), other)
        for other, others in fields.items()
        if _MIN_SHARED_FIELDS <= len(others) < len(fields[name]) and set(others) <= set(fields[name])
    ]
    return max(candidates)[1] if candidates else None


def write_inputs(components: Mapping[str, Schema], names: Iterable[str]) -> str:
    """Return the source of the typed dictionaries *names*, and of those that they contain."""
    writer = TypeWriter(components, is_input=True)
    writer.used.update(dict.fromkeys(names))
    blocks = list[str]()
    names = list[str]()
    for name in _follow(writer):
        names.append(name)
        lines = [_docstring(components[name], name), ""]
        for field, schema, is_required in _list_fields(components[name]):
            annotation = writer.write(schema).replace("inputs.", "")
            lines.append(f"{field}: Required[{annotation}]" if is_required else f"{field}: {annotation}")
            lines += _document_field(schema)
        blocks.append(f"class {name}(TypedDict, total=False):\n{_indent(lines)}")
    return _join(_HEADER.format(title="Objects in arguments.", imports=_INPUTS_IMPORTS), [*blocks, _write_all(names)])


def write_errors(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return the source of the error classes, for the code, the HTTP status and the meaning of each."""
    bases = {code: get_status_class(int(status)).__name__ for code, status, _ in rows}
    meanings = {code: meaning for code, _, meaning in rows}
    names = {code: code.title().replace("_", "") for code in bases}
    imports = f"\nfrom rookery_client.client_errors import ApiError, {', '.join(sorted(set(bases.values())))}\n"
    blocks = [f"class {names[code]}({base}):\n{_indent([_quote(meanings[code])])}" for code, base in bases.items()]
    table = "\n".join(f'    "{code}": {name},' for code, name in names.items())
    blocks += [f"CLASSES: dict[str, type[ApiError]] = {{\n{table}\n}}", _write_all(names.values())]
    return _join(_HEADER.format(title="Errors of the API, by code.", imports=imports), blocks)


def _write_all(names: Iterable[str]) -> str:
    lines = "\n".join(f'    "{name}",' for name in sorted(names))
    return f"__all__ = [\n{lines}\n]"


def write_group(group: str, methods: Sequence[Method], writer: TypeWriter, result_writer: TypeWriter) -> str:
    """Return the source of the two classes of a group."""
    blocks = list[str]()
    for is_async in (False, True):
        session = "AsyncSession" if is_async else "Session"
        lines = [
            f'"""Operations of `client.{group}`."""',
            "",
            f"def __init__(self, session: {session}) -> None:",
            "    self._session = session",
        ]
        for method in methods:
            lines += ["", *_write_method(method, writer, result_writer, is_async=is_async)]
        blocks.append(f"class {_class_name(group, is_async=is_async)}:\n{_indent(lines)}")
    return _join(_HEADER.format(title=f"Operations of `client.{group}`.", imports=_GROUP_IMPORTS), blocks)


def write_groups(groups: Sequence[str]) -> str:
    """Return the source of the classes that have all groups as attributes."""
    imports = "\n".join(
        f"from rookery_client.operations.{group} import {_class_name(group, is_async=True)}, {_class_name(group, is_async=False)}"
        for group in sorted(groups)
    )
    blocks = list[str]()
    for is_async in (False, True):
        prefix = "Async" if is_async else ""
        lines = [
            '"""The groups of operations."""',
            "",
            f"def __init__(self, session: {prefix}Session) -> None:",
            "    self._session = session",
        ]
        lines += [f"    self.{group} = {_class_name(group, is_async=is_async)}(session)" for group in groups]
        blocks.append(f"class {prefix}Groups:\n{_indent(lines)}")
    session = "\nfrom rookery_client.sessions import AsyncSession, Session\n"
    return _join(_HEADER.format(title="All groups of operations.", imports=f"\n{imports}{session}"), blocks)


def _class_name(group: str, *, is_async: bool) -> str:
    return f"{'Async' if is_async else ''}{group.title().replace('_', '')}Operations"


def _write_method(method: Method, writer: TypeWriter, result_writer: TypeWriter, *, is_async: bool) -> Iterator[str]:
    sender, prefix = "send", "async def" if is_async else "def"
    if method.item is None:
        result = returns = _result_type(method, result_writer)
    else:
        item, sender = result_writer.write(method.item), "send_page"
        result, returns = f"PageBody[{item}]", f"{'AsyncPage' if is_async else 'Page'}[{item}]"
    if method.may_be_empty:
        returns += " | None"
    if method.reader == "stream":
        sender, prefix = "stream", "def"
        returns = f"{'AbstractAsyncContextManager' if is_async else 'AbstractContextManager'}[EventSource]"
    arguments = [*_write_arguments(method, writer)]
    yield from _fill(f"{prefix} {method.name}(", arguments, f") -> {returns}:")
    yield from (f"    {line}".rstrip() for line in _document_method(method))
    wait = "await " if is_async and method.reader != "stream" else ""
    call = [f'operation="{method.operation}"', f'method="{method.http_method}"', f"path={_path(method)}", f"result={_runtime_type(result)}"]
    call += [f"{key}={value}" for key, value in _call_fields(method)]
    yield from (f"    {line}" for line in _fill(f"return {wait}self._session.{sender}(Call(", call, "))"))


def _document_method(method: Method) -> list[str]:
    """Return the docstring of a method: what it does, and its arguments."""
    paragraphs = [text for text in method.description.split("\n\n") if text]
    if method.reader == "stream" and method.name != method.operation:
        paragraphs.insert(0, f"{method.summary.rstrip('.')}, and return its events as they happen.")
    described = [argument for argument in method.arguments if argument.description]
    required_first = sorted(described, key=lambda argument: (argument.place != "path", not argument.is_required))
    lines = "\n\n".join("\n".join(textwrap.wrap(text, _WIDTH - 12)) for text in paragraphs or [f"{method.summary.rstrip('.')}."]).split(
        "\n"
    )
    rows = [(argument.name, argument.description) for argument in required_first]
    if method.accepts_key:
        rows.append(("idempotency_key", _KEY_DESCRIPTION))
    if rows:
        lines += ["", "Args:"]
    for name, description in rows:
        lines += textwrap.wrap(f"{name}: {_end(description)}", _WIDTH - 12, initial_indent="    ", subsequent_indent="        ")
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""\n{text}\n"""'.split("\n")


def _end(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _write_arguments(method: Method, writer: TypeWriter) -> Iterator[str]:
    yield "self"
    for argument in method.arguments:
        if argument.place == "path":
            yield f"{argument.name}: str" if argument.schema.get("type") != "integer" else f"{argument.name}: int"
    others = [argument for argument in method.arguments if argument.place != "path"]
    if others or method.content_types:
        yield "*"
    if method.content_types:
        yield "content: bytes | str"
        yield f"content_type: str = {method.content_types[0]!r}".replace("'", '"')
    for argument in sorted(others, key=lambda argument: not argument.is_required):
        annotation = writer.write(argument.schema)
        if not argument.is_required:
            plain = annotation.removesuffix(" | None")
            annotation = f"{plain} | Unset{' | None' if plain != annotation else ''} = UNSET"
        yield f"{argument.name}: {annotation}"
    if method.accepts_key:
        yield "idempotency_key: str | Unset = UNSET"


def _call_fields(method: Method) -> Iterator[tuple[str, str]]:
    for place, field in (("query", "query"), ("header", "headers")):
        arguments = [argument for argument in method.arguments if argument.place == place]
        if arguments:
            yield field, _write_given(arguments)
    if method.has_body:
        fields = [argument for argument in method.arguments if argument.place == "body"]
        yield "body", "body" if [field.sent_as for field in fields] == [""] else _write_given(fields)
    if method.content_types:
        yield "content", "content"
        yield "content_type", "content_type"
    if method.reader in {"text", "nothing"}:
        yield "reader", f'"{method.reader}"'
    if method.accept != "application/json":
        yield "accept", f'"{method.accept}"'
    if method.accepts_key:
        yield "accepts_key", "True"
        yield "idempotency_key", "idempotency_key"
    if method.is_repeatable:
        yield "repeatable", "True"


def _write_given(arguments: Sequence[Argument]) -> str:
    plain = [f"{argument.name}={argument.name}" for argument in arguments if argument.name.rstrip("_") == argument.sent_as]
    renamed = [f'"{argument.sent_as}": {argument.name}' for argument in arguments if argument.name.rstrip("_") != argument.sent_as]
    parts = [*plain, *([f"**{{{', '.join(renamed)}}}"] if renamed else [])]
    return "\n".join(_fill("given(", parts, ")", width=_WIDTH - 14))


def _path(method: Method) -> str:
    names = [argument.name for argument in method.arguments if argument.place == "path"]
    if not names:
        return f'"{method.path}"'
    return f'fill_path("{method.path}", {", ".join(f"{name}={name}" for name in names)})'


def _result_type(method: Method, writer: TypeWriter) -> str:
    if method.reader == "text":
        return "str"
    return "None" if method.result is None else writer.write(method.result)


def _runtime_type(result: str) -> str:
    return "type(None)" if result == "None" else result


def _write_model_fields(component: Schema, writer: TypeWriter) -> Iterator[str]:
    for field, schema, is_required in _list_fields(component):
        annotation, name = writer.write(schema).replace("models.", ""), to_attribute(field)
        if not is_required and not annotation.endswith("None"):
            annotation += " | None"
        parts = ([] if is_required else ["default=None"]) + ([f'alias="{field}"'] if name != field else [])
        if name != field:
            line = f"{name}: {annotation} = Field({', '.join(parts)})"
        else:
            line = f"{name}: {annotation}" if is_required else f"{name}: {annotation} = None"
        yield "\n".join([line, *_document_field(schema)])


def _document_field(schema: Schema) -> list[str]:
    """Return the docstring of a field, which editors show."""
    return [_quote(" ".join(str(schema["description"]).split()))] if schema.get("description") else []


def _list_fields(component: Schema) -> Iterator[tuple[str, Schema, bool]]:
    required = cast("Sequence[str]", component.get("required", ()))
    for field, schema in cast("Mapping[str, Schema]", component.get("properties", {})).items():
        yield field, schema, field in required


def _follow(writer: TypeWriter) -> Iterator[str]:
    """Yield the objects that are used, including those that are found while the yielded ones are written, in order of their names."""
    done = set[str]()
    while open_names := sorted(writer.used.keys() - done):
        done.add(open_names[0])
        yield open_names[0]


def _docstring(component: Schema, name: str) -> str:
    text = str(component.get("description") or f"{name}.").strip().split("\n\n")[0].replace("\n", " ")
    return _quote(text)


def _quote(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"""', "'''").strip()
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    if len(text) < _WIDTH - 20:
        return f'"""{text}"""'
    return '"""\n' + "\n".join(textwrap.wrap(text, _WIDTH - 12)) + '\n"""'


def _fill(start: str, parts: Sequence[str], end: str, *, width: int = _WIDTH - 10) -> list[str]:
    """Return *parts* between *start* and *end*: on one line if they fit, else on filled lines."""
    line = f"{start}{', '.join(parts)}{end}"
    if len(line) <= width and "\n" not in line:
        return [line]
    lines, current = [start], "   "
    for part in parts:
        if "\n" in part:
            lines += [*([current] if current.strip() else []), *textwrap.indent(f"{part},", "    ").split("\n")]
            current = "   "
            continue
        if len(current) + len(part) + 2 > width and current.strip():
            lines.append(current)
            current = "   "
        current += f" {part},"
    return [*lines, *([current] if current.strip() else []), end]


def _indent(lines: Iterable[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ").rstrip()


def _join(header: str, blocks: Sequence[str]) -> str:
    """Return the module, without the imports that it does not use."""
    body = "\n\n\n".join(blocks)
    text = f"{header.rstrip()}\n\n\n{body}\n".replace("\n\nclass Model(", "\n\n\nclass Model(", 1)
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--fix-only",
        "--quiet",
        "--select",
        "F401",
        "--stdin-filename",
        "x.py",
        "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
