"""
Forms to create and to change a resource, made from the bodies of two operations.

A control has the name of its field; those of an object in a field have dotted names. Each form says in a hidden field what its controls
showed. Only the controls that were changed are sent, so that two people who change different fields do not overwrite each other.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast
from urllib.parse import quote
from zlib import crc32

from starlette.responses import Response

from rookery.console.arguments import parse_integer, parse_json, parse_number, refuse_field
from rookery.console.formats import to_json
from rookery.console.operation_schemas import ObjectSchema, SchemaField, get_value
from rookery.console.visit import SubmittedForm, View, Visit, get_field_errors
from rookery_client import ApiError

ControlKind = Literal["text", "area", "url", "number", "select", "checkbox", "checks", "lines", "pairs", "json", "expiry", "rows", "group"]
Options = Mapping[str, Sequence[tuple[str, str]]]
"""The choices of check boxes, value and description, by the title of their group."""

SHOWN_FIELD = "shown"
"""The hidden field with a digest of what each control showed."""

MORE = "More settings"
"""The title of the group with the fields that a declaration does not name. It is folded."""

UNLISTED, LISTED = "[*]", "[]"
"""The choice beside the items of a list that may be null, in a field of its own: null, or the listed items, which may be none."""

_LONG_TEXT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlHint:
    """
    The texts and the choices of a control that the declaration of its field does not have.

    Attributes:
        help: The text below the control. None: the description of the field.
        texts: The texts of options, where the values do not say enough.
        load_options: Returns the choices for check boxes. None: those of the field.
        is_folded: Each group of choices is hidden until a person opens it.
        scope: The scope without which the API does not tell the present value. Then it cannot be changed here either.
        read_line, write_line: Convert an item of a list from and to a line. None: the items are texts.
    """

    label: str = ""
    help: str | None = None
    kind: ControlKind | None = None
    placeholder: str = ""
    rows: int = 5
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    load_options: Callable[[Visit], Awaitable[Options]] | None = None
    is_folded: bool = False
    scope: str = ""
    read_line: Callable[[str], object] | None = None
    write_line: Callable[[Any], str] = str


@dataclass(slots=True)
class Control:
    """
    A control of a form.

    Attributes:
        kind: A `group` has the controls of an object. `pairs` are lines with a name and a value, `rows` two fields for each of them.
        texts: What it shows, as a browser sends it. A list has a text for each item; one that may be null has its choice before them.
        items: The items of a list.
        others: The items that are no option and fit in a line.
        odd_items: Those that do not, as a line break is in them, or white space at their ends.
        is_open_list: Null and an empty list differ.
    """

    name: str
    label: str
    kind: ControlKind
    help: str
    hint: ControlHint
    source: SchemaField
    is_required: bool
    texts: list[str] = field(default_factory=list[str])
    options: Options = field(default_factory=dict[str, Sequence[tuple[str, str]]])
    children: list[Control] = field(default_factory=list["Control"])

    @property
    def text(self) -> str:
        return "\n".join(self.others) if self.kind == "lines" else self.texts[0] if self.texts else ""

    @property
    def items(self) -> list[str]:
        return self.texts[1:] if self.is_open_list else self.texts

    @property
    def is_unlisted(self) -> bool:
        return self.is_open_list and self.texts[:1] == [UNLISTED]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Its names and values, and two empty rows."""
        return [*((name, value) for name, _, value in (line.rpartition(": ") for line in self.text.splitlines())), ("", ""), ("", "")]

    @property
    def others(self) -> list[str]:
        return [text for text in self._list_unknown() if not self.is_open_list or _fits_in_line(text)]

    @property
    def odd_items(self) -> list[str]:
        return [text for text in self._list_unknown() if self.is_open_list and not _fits_in_line(text)]

    @property
    def is_open_list(self) -> bool:
        return self.kind == "lines" and self.source.is_nullable and not self.source.get_limit("minItems")

    @property
    def choice_name(self) -> str:
        return f"{self.name}-choice"

    @property
    def lines_name(self) -> str:
        """The name of the text area of a list that has boxes too."""
        return f"{self.name}-lines"

    def is_in(self, form: SubmittedForm) -> bool:
        return any(form.has(name) for name in (self.name, self.choice_name, self.lines_name))

    def digest(self, texts: Sequence[str]) -> str:
        """Return a digest of its texts in any order, as the boxes of a list come in that of the page."""
        compared = texts if self.is_open_list or self.kind == "checks" else [text.strip() for text in texts if text.strip()]
        return f"{crc32(json.dumps(sorted(compared)).encode()):x}"

    def read_texts(self, form: SubmittedForm) -> list[str]:
        """Return its texts in a submitted form. The value of a box is an item as it is; that of a text area has one a line."""
        texts = form.texts(self.name)
        if self.is_open_list:
            return [(form.texts(self.choice_name) or [""])[0], *texts, *_split_lines(form.texts(self.lines_name))]
        if self.kind == "rows":
            return ["\n".join(f"{name}: {value}" for name, value in zip(texts[::2], texts[1::2], strict=False) if (name + value).strip())]
        return _split_lines(texts) if self.kind == "lines" else texts

    def _list_unknown(self) -> list[str]:
        values = {value for options in self.options.values() for value, _ in options}
        return [text for text in self.items if text not in values]


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """
    Controls below one title.

    Attributes:
        is_row: They stand beside each other.
        is_folded: They are hidden until a person opens the group.
    """

    title: str
    names: tuple[str, ...]
    is_row: bool = False
    is_folded: bool = False
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceForm:
    """
    The forms of a resource.

    Attributes:
        path: The path below `/console/` to which the id of a resource is added.
        has_page: A resource has a page of its own. Otherwise its list is shown in place of it.
        list_path: The path of its list, if it is another one.
        parameter: The name of the path parameter with its id.
        client: The attribute of the client with its operations.
        create, get, change: The ids of the operations. Without *create*, there is no page for a new one.
        groups: The groups of fields in order. Fields that none names are in a last group, which is folded.
        hidden: The fields that other parts of the console set.
        error_names: The fields of errors that the API names otherwise.
        back: The title of the list.
        show_created: Returns the page after a new one was made. None: the page of the resource.
    """

    path: str
    has_page: bool = True
    list_path: str = ""
    parameter: str
    client: str
    scope: str
    noun: str
    back: str
    lead: str
    create: str = ""
    get: str = ""
    change: str = ""
    create_label: str = "Create"
    groups: Sequence[ControlGroup]
    hints: Mapping[str, ControlHint] = field(default_factory=dict[str, ControlHint])
    hidden: frozenset[str] = frozenset()
    error_names: Mapping[str, str] = field(default_factory=dict[str, str])
    show_created: Callable[[Visit, Any], Response] | None = None

    def views(self) -> tuple[View, ...]:
        """Return the views of the pages `new` and `edit`."""
        new, edit = f"/{self.path}/new", f"/{self.path}/{{{self.parameter}}}/edit"
        create = (View("GET", new, self.show_new, self.scope), View("POST", new, self.save_new, self.scope)) if self.create else ()
        return (*create, View("GET", edit, self.show_edit, self.scope), View("POST", edit, self.save_changes, self.scope))

    async def show_new(self, visit: Visit) -> Response:
        return await self._show(visit, self.create, None)

    async def save_new(self, visit: Visit) -> Response:
        form = await visit.form()
        try:
            created = await self._call(visit, self.create)(**self.read(visit.operations.get_body(self.create), form, is_new=True))
        except ApiError as error:
            return await self._show(visit, self.create, None, form, error)
        return self.show_created(visit, created) if self.show_created else visit.redirect(self._get_page(created.id), "created")

    async def show_edit(self, visit: Visit) -> Response:
        return await self._show(visit, self.change, await self._call(visit, self.get)(visit.path(self.parameter)))

    async def save_changes(self, visit: Visit) -> Response:
        form, id_ = await visit.form(), visit.path(self.parameter)
        try:
            changes = self.read(visit.operations.get_body(self.change), form, is_new=False)
            if changes:
                await self._call(visit, self.change)(id_, **changes)
        except ApiError as error:
            return await self._show(visit, self.change, await self._call(visit, self.get)(id_), form, error)
        return visit.redirect(self._get_page(id_), "saved")

    async def build(
        self, visit: Visit, operation: str, present: object, form: SubmittedForm | None = None, error: ApiError | None = None
    ) -> dict[str, object]:
        """
        Return what `resource/forms.html` needs to show the form of an operation.

        Args:
            present: The resource with its present values; None: a new one.
            form: A form that was refused. Its texts are shown again.
            error: The reason. Its errors of fields are shown at their controls.

        Raises:
            ApiError: *error* is not about the fields of a form.
        """
        body, is_new = visit.operations.get_body(operation), present is None
        hidden = self.hidden | {name for name, hint in self.hints.items() if hint.scope and not is_new and not visit.can(hint.scope)}
        controls = [self._build_control(body, source, present, is_new=is_new) for name, source in body.fields.items() if name not in hidden]
        leaves = list(_iter_leaves(controls))
        digests = {leaf.name: leaf.digest(leaf.texts) for leaf in leaves} if form is None else _read_shown(form)
        loaded = dict[object, Options]()
        for leaf in leaves:
            loader = leaf.hint.load_options
            if loader is not None and loader not in loaded:
                loaded[loader] = await loader(visit)
            leaf.options = _list_options(leaf) if loader is None else loaded[loader]
            if form is not None and (leaf.is_in(form) or leaf.name in digests):
                leaf.texts = leaf.read_texts(form)
        refused = {} if error is None else get_field_errors(error)
        errors = _place_errors(
            {self.error_names.get(name, name): texts for name, texts in refused.items()}, {control.name for control in (*leaves, *controls)}
        )
        return {"groups": self._group(controls, errors), "shown": json.dumps(digests), "errors": errors}

    def read(self, body: ObjectSchema, form: SubmittedForm, *, is_new: bool) -> dict[str, object]:
        """
        Return the fields of a form that differ from what it showed.

        Raises:
            ApiError: A text is no value of its field.
        """
        digests, values = _read_shown(form), dict[str, object]()
        for name, source in body.fields.items():
            control = self._build_control(body, source, None, is_new=is_new)
            leaves = [leaf for leaf in _iter_leaves([control]) if leaf.is_in(form) or leaf.name in digests]
            must_send = is_new and source.is_required
            is_changed = any(leaf.digest(leaf.read_texts(form)) != digests.get(leaf.name) for leaf in leaves)
            if name in self.hidden or not (must_send or is_changed):
                continue
            if control.kind == "group":
                parts = {leaf.name.rpartition(".")[2]: _parse(leaf, form, digests.get(leaf.name), is_new=True) for leaf in leaves}
                filled = {part: value for part, value in parts.items() if value is not _OMITTED}
                values[name] = None if not filled and source.is_nullable else filled
            elif (value := _parse(control, form, digests.get(name), is_new=is_new and not must_send)) is not _OMITTED:
                values[name] = value
        return values

    async def _show(
        self, visit: Visit, operation: str, present: object, form: SubmittedForm | None = None, error: ApiError | None = None
    ) -> Response:
        content = await self.build(visit, operation, present, form, error)
        id_ = "" if present is None else str(get_value(present, "id"))
        status = error.status if error else 200
        return visit.render("resource/form.html", status=status, form=self, id=id_, back=self._get_page(id_), **content)

    def _get_page(self, id_: str) -> str:
        return f"{self.path}/{quote(id_, safe='')}" if id_ and self.has_page else self.list_path or self.path

    def _call(self, visit: Visit, operation: str) -> Callable[..., Awaitable[Any]]:
        return cast("Callable[..., Awaitable[Any]]", getattr(getattr(visit.client, self.client), operation))

    def _build_control(self, body: ObjectSchema, source: SchemaField, present: object, *, is_new: bool) -> Control:
        hint = self.hints.get(source.name, ControlHint())
        children = {} if hint.kind else body.list_children(source)
        value = source.default if is_new and present is None else get_value(_dump(present), source.name)
        kind: ControlKind = "group" if children else hint.kind or _choose_kind(source)
        has_value = not is_new and not source.is_nullable and (bool(source.get_limit("minLength")) or kind == "number")
        control = Control(
            name=source.name,
            label=hint.label or source.label,
            kind=kind,
            help=source.description if hint.help is None else hint.help,
            hint=hint,
            source=source,
            is_required=source.is_required or has_value,
        )
        control.children = [self._build_control(body, child, present, is_new=is_new) for child in children.values()]
        for child in () if source.is_required else control.children:
            child.is_required = False
        control.texts = _format(control, value)
        return control

    def _group(self, controls: Sequence[Control], errors: Mapping[str, list[str]]) -> list[ControlGroup]:
        by_name = {control.name: control for control in controls}
        grouped = {name for group in self.groups for name in group.names}
        rest = ControlGroup(MORE, tuple(name for name in by_name if name not in grouped), is_folded=True)
        groups = [
            replace(group, controls=tuple(by_name[name] for name in group.names if name in by_name)) for group in (*self.groups, rest)
        ]
        faulty = {name.partition(".")[0] for name in errors}
        return [replace(group, is_folded=group.is_folded and faulty.isdisjoint(group.names)) for group in groups if group.controls]


_LISTS = frozenset({"checks", "lines"})
_OMITTED = object()
"""The value of a field that is left out."""


def _choose_kind(source: SchemaField) -> ControlKind:
    item = source.item
    if source.kind == "array" and item is not None:
        return "checks" if item.get("enum") else "lines" if item.get("type") == "string" else "json"
    if source.kind == "object" and item is not None and (item.get("type") in ("string", "integer") or "anyOf" in item):
        return "pairs"
    if source.kind == "boolean":
        return "select" if source.is_nullable and "const" not in source.rules else "checkbox"
    if source.kind in ("integer", "number"):
        return "number"
    if source.options:
        return "select"
    if source.kind != "string":
        return "json"
    if (source.get_limit("maxLength") or 0) > _LONG_TEXT and "url" not in source.name:
        return "area"
    return "url" if source.name == "url" else "text"


def _iter_leaves(controls: Sequence[Control]) -> Iterator[Control]:
    for control in controls:
        yield from _iter_leaves(control.children) if control.kind == "group" else (control,)


def _list_options(control: Control) -> Options:
    if control.kind == "checks" and control.source.item is not None:
        return {"": [(str(option), "") for option in cast("list[object]", control.source.item["enum"])]}
    if control.kind != "select":
        return {}
    options = control.source.options or ["true", "false"]
    texts = {"true": "yes", "false": "no"} | dict(control.hint.texts)
    empty = [("", texts.get("", "by default"))] if control.source.is_nullable else []
    return {"": [*empty, *((option, texts.get(option, option)) for option in options)]}


def _format(control: Control, value: object) -> list[str]:
    """Return the texts of a control that shows *value*."""
    match control.kind:
        case "checkbox":
            return ["true"] if value is True else []
        case "checks" | "lines":
            items = [control.hint.write_line(item) for item in cast("list[object]", value or [])]
            return [UNLISTED if value is None else LISTED, *items] if control.is_open_list else items
        case "pairs" | "rows":
            pairs = cast("Mapping[str, object]", value or {})
            return ["\n".join(f"{name}: {_format_scalar(control, item)}" for name, item in pairs.items())]
        case "expiry":
            return ["at", _format_time(value)] if value else ["", ""]
        case "json":
            return ["" if value in (None, {}, []) else to_json(value)]
        case "group":
            return []
        case _:
            return ["" if value is None else _format_text(value)]


def _format_text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _format_time(value: object) -> str:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return "" if not isinstance(moment, datetime) else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M}"


def _format_scalar(control: Control, value: object) -> str:
    if isinstance(value, str) and _parse_scalar(control, value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _parse(control: Control, form: SubmittedForm, digest: str | None, *, is_new: bool) -> object:
    """Return the value in a control, or `_OMITTED`. *digest*: that of what it showed."""
    name, texts = control.name, control.read_texts(form)
    text = texts[0].strip() if texts else ""
    empty = None if control.source.is_nullable and not is_new else _OMITTED if is_new else None
    match control.kind:
        case "checkbox":
            return (True if texts else _OMITTED) if "const" in control.source.rules else bool(texts)
        case "checks" | "lines":
            if control.is_open_list and not _is_listed(control, texts, digest):
                return None
            lines = texts[1:] if control.is_open_list else texts
            items = [control.hint.read_line(line) for line in lines] if control.hint.read_line else lines
            return items if items or control.is_open_list or not control.source.is_nullable else empty
        case "pairs" | "rows":
            return _parse_pairs(control, text)
        case "json" if text:
            return parse_json(name, text)
        case "json" if not (is_new or control.source.is_nullable):
            return {} if control.source.kind == "object" else []
        case "number":
            return (parse_integer if control.source.kind == "integer" else parse_number)(name, text) if text else empty
        case "select":
            return empty if not text else text == "true" if control.source.kind == "boolean" else text
        case "expiry":
            return _parse_expiry(name, text, texts[1] if len(texts) > 1 else "")
        case _:
            whole = texts[0] if texts and control.kind == "area" else text
            return whole if whole or not control.source.is_nullable else empty


def _is_listed(control: Control, texts: Sequence[str], digest: str | None) -> bool:
    """
    Return whether the items of a list count, and not the choice of all.

    Raises:
        ApiError: Nothing was chosen; or all, and items too that the form did not show as chosen. Some browsers show both.
    """
    choice, *items = texts
    if choice == UNLISTED and items and control.digest([LISTED, *items]) != digest:
        raise refuse_field(control.name, "has items, and also 'All': choose 'Only these', or leave the items out")
    if choice not in {UNLISTED, LISTED}:
        raise refuse_field(control.name, "choose 'All' or 'Only these'")
    return choice == LISTED


def _fits_in_line(text: str) -> bool:
    return _split_lines([text]) == [text]


def _split_lines(texts: Sequence[str]) -> list[str]:
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


def _parse_pairs(control: Control, text: str) -> dict[str, object]:
    has_numbers = control.source.item is not None and control.source.item.get("type") == "integer"
    values = dict[str, object]()
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.rpartition(":") if has_numbers else line.partition(":")
        if not colon or not name.strip():
            raise refuse_field(control.name, f"{line[:60]!r} must be a name, a colon and a value")
        values[name.strip()] = _parse_scalar(control, value.strip())
    return values


def _parse_scalar(control: Control, text: str) -> object:
    if control.source.item is not None and control.source.item.get("type") == "string":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text


def _parse_expiry(name: str, choice: str, time: str) -> object:
    if choice == "at" and not time:
        raise refuse_field(name, "choose a time, or 'never'")
    if choice in {"", "at"}:
        return time if choice else None
    days = parse_integer(name, choice) or 0
    try:
        return datetime.now(UTC) + timedelta(days=days)
    except OverflowError:
        raise refuse_field(name, f"must be a number of days before the year 10000; got {days}") from None


def _dump(present: object) -> object:
    dump = getattr(present, "model_dump", None)
    return dump(mode="json", by_alias=True) if callable(dump) else present


def _read_shown(form: SubmittedForm) -> dict[str, str]:
    """Return the digests of what the controls of a form showed; empty, if it was not made here."""
    try:
        digests = json.loads(form.get(SHOWN_FIELD) or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(digest) for name, digest in cast("dict[object, object]", digests).items()} if isinstance(digests, dict) else {}


def _place_errors(errors: Mapping[str, list[str]], names: set[str]) -> dict[str, list[str]]:
    """Return errors by the controls to which they belong, such as that of the third item of a list by the list."""
    placed = dict[str, list[str]]()
    for path, texts in errors.items():
        parts = path.split(".")
        owner = next((name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in names), path)
        rest = path[len(owner) + 1 :]
        placed.setdefault(owner, []).extend(f"{rest}: {text}" if rest else text for text in texts)
    return placed
