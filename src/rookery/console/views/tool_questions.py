"""The questions of a tool that asks for input (`input_required`): a form made from their schemas, and the answers of a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from rookery.console.schema_form.edits import BRANCH, SHOWN_BRANCH, InvalidJsonText, apply_form, parse_json, read_choices
from rookery.console.schema_form.nodes import FormNode, build_form, escape_pointer, to_json_text
from rookery.console.schema_form.schemas import JsonObject, as_list, get_properties, get_type, is_object

QUESTIONS_FIELD = "questions"
"""The field that distinguishes a form of answers from that of a call."""

_MAX_QUESTIONS_LENGTH = 64 * 1024
_MAX_MESSAGE_LENGTH = 4_000
_ROOT = "input_responses"
"""The property that holds all answers. It keeps the ids of their controls apart from those of the arguments."""

_ELICITATION, _SAMPLING, _ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
_SAMPLING_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The answer of the model."},
        "model": {"type": "string", "description": "Who wrote it.", "default": "person"},
    },
    "required": ["text", "model"],
}
_ROOTS_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"uris": {"type": "array", "items": {"type": "string"}, "description": "URIs of folders, such as file:///data."}},
}

Action = Literal["accept", "decline", "cancel"]
ACTIONS: tuple[Action, ...] = ("accept", "decline", "cancel")


class InvalidQuestions(ValueError):
    """Fields of a submitted form that no page of the console sends."""


@dataclass(frozen=True, slots=True)
class Question:
    """
    One request for input.

    Attributes:
        method: Its method in the protocol. Only an elicitation can be declined.
        url: The address that a person opens instead of filling in a form; empty for a form.
        prompt: The messages for the model of a sampling request, as JSON.
        schema: What the answer has.
    """

    name: str
    method: str
    message: str
    schema: JsonObject
    url: str = ""
    prompt: str = ""


@dataclass(slots=True)
class QuestionForm:
    """
    The form of all questions of a call.

    Attributes:
        requests: The questions as the tool server sent them.
        state: The `requestState`, which goes back unchanged, or None.
        value: The answers so far, by the name of their question.
        errors: What is wrong, by JSON pointer.
        texts: Texts of fields that are not JSON, by pointer.
    """

    arguments: str
    requests: JsonObject
    state: str | None
    value: JsonObject
    choices: Mapping[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    texts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def is_too_long(self) -> bool:
        """True if the questions are too long for a form."""
        return len(self.questions_text) > _MAX_QUESTIONS_LENGTH

    @property
    def questions_text(self) -> str:
        """The questions and the state as JSON, for a hidden field. Browsers change the line ends of other texts."""
        return json.dumps({"inputRequests": self.requests, "requestState": self.state})

    @property
    def value_text(self) -> str:
        """The answers so far as JSON, for a hidden field."""
        return json.dumps(self.value)

    @property
    def can_decline(self) -> bool:
        """True if every question may be declined."""
        return bool(self.requests) and all(question.method == _ELICITATION for question in self.list_questions())

    def list_questions(self) -> list[Question]:
        return [_read_question(name, request) for name, request in self.requests.items()]

    def list_controls(self) -> list[tuple[Question, list[FormNode]]]:
        """Return the questions with the controls of their answers."""
        form = build_form(_build_schema(self.list_questions()), {_ROOT: self.value}, self.choices)
        nodes = [(question, form.find(f"/{_ROOT}/{escape_pointer(question.name)}")) for question in self.list_questions()]
        return [(question, [] if node is None or question.url else node.children) for question, node in nodes]

    def build_responses(self, action: Action) -> dict[str, JsonObject]:
        """Return the answers in the form of the protocol, by the name of their question."""
        return {question.name: _build_response(question, action, self.value.get(question.name)) for question in self.list_questions()}

    def find_errors(self) -> dict[str, list[str]]:
        """Return the fields that are required and empty, and those that must be numbers, by pointer. The tool server checks the rest."""
        errors = {pointer: list(texts) for pointer, texts in self.errors.items()}
        for question in self.list_questions():
            answer = self.value.get(question.name)
            fields = answer if is_object(answer) else {}
            required: set[str] = set() if question.url else {str(name) for name in as_list(question.schema.get("required"))}
            for name, rules in get_properties(question.schema).items():
                pointer = f"/{_ROOT}/{escape_pointer(question.name)}/{escape_pointer(name)}"
                is_number = is_object(rules) and get_type(rules) in {"integer", "number"}
                if name in required and fields.get(name, "") == "":
                    errors.setdefault(pointer, []).append("This field is required.")
                elif is_number and isinstance(fields.get(name), str):
                    errors.setdefault(pointer, []).append("This is not a number.")
        return errors


def read_questions(result: JsonObject, arguments: str) -> QuestionForm:
    """Return the form of an `input_required` *result*, with the defaults of its schemas filled in."""
    requests, state = result.get("inputRequests"), result.get("requestState")
    form = QuestionForm(arguments, requests if is_object(requests) else {}, state if isinstance(state, str) else None, {})
    for question in form.list_questions():
        rules = {name: part for name, part in get_properties(question.schema).items() if is_object(part)}
        form.value[question.name] = {name: part["default"] for name, part in rules.items() if part.get("default") is not None}
    return form


def read_submitted(fields: Mapping[str, str]) -> tuple[QuestionForm, Action | None]:
    """
    Return the submitted form, and what to do with it; None: show the form again, because its structure changed or a field is wrong.

    Raises:
        InvalidQuestions: The questions or the answers so far are not those of a page.
    """
    result = _parse(fields, QUESTIONS_FIELD)
    requests, state = result.get("inputRequests"), result.get("requestState")
    form = QuestionForm(
        fields.get("arguments", ""),
        requests if is_object(requests) else {},
        state if isinstance(state, str) else None,
        _parse(fields, "value"),
        read_choices(fields),
    )
    schema, edit = _build_schema(form.list_questions()), fields.get("edit", "")
    applied = apply_form(schema, {_ROOT: form.value}, fields, edit)
    answers = applied.value.get(_ROOT) if is_object(applied.value) else None
    form.value, form.texts, form.errors = answers if is_object(answers) else {}, applied.texts, applied.errors
    action: Action | None = next((name for name in ACTIONS if name == fields.get("do")), None)
    if edit or any(text != fields.get(SHOWN_BRANCH + name[1:], text) for name, text in fields.items() if name.startswith(f"{BRANCH}/")):
        return form, None
    if action == "accept":
        form.errors = form.find_errors()
    return form, (None if action == "accept" and form.errors else action)


def _parse(fields: Mapping[str, str], name: str) -> JsonObject:
    try:
        value = parse_json(fields.get(name, ""))
    except InvalidJsonText as error:
        raise InvalidQuestions(str(error)) from None
    if not is_object(value):
        raise InvalidQuestions(f"{name} is no object")
    return value


def _build_schema(questions: list[Question]) -> JsonObject:
    answers: JsonObject = {
        "type": "object",
        "properties": {question.name: question.schema for question in questions},
        "required": [question.name for question in questions],
    }
    return {"type": "object", "properties": {_ROOT: answers}, "required": [_ROOT]}


def _read_question(name: str, request: object) -> Question:
    method = str(request.get("method")) if is_object(request) else ""
    value = request.get("params") if is_object(request) else None
    params = value if is_object(value) else {}
    message = str(params.get("message") or "")[:_MAX_MESSAGE_LENGTH]
    if method == _SAMPLING:
        prompt = {key: params[key] for key in ("systemPrompt", "messages") if key in params}
        return Question(name, method, "The tool asks for the answer of a language model.", _SAMPLING_SCHEMA, prompt=to_json_text(prompt))
    if method == _ROOTS:
        return Question(name, method, "The tool asks which folders it may use.", _ROOTS_SCHEMA)
    schema = params.get("requestedSchema")
    url = params.get("url")
    rules: JsonObject = {"type": "object", "properties": {}, **(schema if is_object(schema) else {})}
    return Question(name, method, message, rules, url=url if params.get("mode") == "url" and isinstance(url, str) else "")


def _build_response(question: Question, action: Action, answer: object) -> JsonObject:
    fields = answer if is_object(answer) else {}
    if question.method == _SAMPLING:
        return {"role": "assistant", "content": {"type": "text", "text": fields.get("text", "")}, "model": fields.get("model", "")}
    if question.method == _ROOTS:
        return {"roots": [{"uri": uri} for uri in cast("list[object]", fields.get("uris") or [])]}
    if action != "accept" or question.url:
        return {"action": action}
    return {"action": action, "content": fields}
