"""Validation of template variables and of the values given for them. Pure: no I/O, no settings."""

from __future__ import annotations

from collections.abc import Mapping

import jsonschema_rs

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import TemplateValue, TemplateVariable, VariableType
from rookery.kernel.sentences import suggest

MAX_VALUE_LENGTH = 10_000
MAX_PATTERN_LENGTH = 500

MAX_MATCHED_LENGTH = 500
"""Maximum characters of a value with a pattern. Matching takes time proportional to the length times the size of the automaton."""

_MAX_REGEX_BYTES = 256 * 1024
"""Maximum size of a compiled pattern in bytes. It rejects attacks such as `a{1000}{1000}` or `[ab]*a[ab]{8000}` for 50 variables."""

_MAX_SUGGESTIONS = 10
_MAX_INTEGER = 2**53
_MAX_LISTED_CHOICES = 20

_SAMPLE_VALUES: Mapping[VariableType, TemplateValue] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}
_TYPE_NAMES: Mapping[VariableType, str] = {"string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def find_variable_faults(variable: TemplateVariable) -> list[str]:
    """Return the errors in the definition of a variable."""
    faults: list[str] = []
    if variable.required and variable.default is not None:
        faults.append("has a default and is required; omit one of them")
    if variable.pattern is not None:
        if variable.type != "string":
            faults.append(f"pattern: is only allowed for a text, not for {_TYPE_NAMES[variable.type]}")
        elif not _is_pattern(variable.pattern):
            faults.append("pattern: must be a regular expression in RE2 syntax (no look-around, no back references) of limited size")
            return faults
    enum = variable.enum or ()
    faults += [f"enum: {_quote(value)} is not {_TYPE_NAMES[variable.type]}" for value in enum if not _has_type(variable.type, value)]
    if not faults and len(set(enum)) < len(enum):
        faults.append("enum: must not contain a value twice")
    if variable.default is not None and not faults:
        faults += [f"default: {fault}" for fault in _find_misfits(variable, variable.default)]
    return faults


def complete_values(variables: Mapping[str, TemplateVariable], given_values: Mapping[str, object]) -> dict[str, TemplateValue | None]:
    """
    Return a value for each of *variables*: the given value, else the default, else None. A null counts as not given.

    Raises:
        ValidationFailed: Variables are unknown, missing or invalid. The errors are listed by `variables.{name}`.
    """
    errors: dict[str, list[str]] = {}
    for number, name in enumerate(name for name in given_values if name not in variables):
        errors[f"variables.{name[:100]}"] = [_describe_unknown(name, variables if number < _MAX_SUGGESTIONS else {})]
    values: dict[str, TemplateValue | None] = {}
    for name, variable in variables.items():
        value = given_values.get(name)
        if value is None:
            values[name] = variable.default
            if variable.required:
                errors[f"variables.{name}"] = ["is required" + (f": {variable.description}" if variable.description else "")]
            continue
        misfits = _find_misfits(variable, value)
        if misfits:
            errors[f"variables.{name}"] = misfits
        elif isinstance(value, (str, int, float)):
            values[name] = value
    if errors:
        raise ValidationFailed(errors)
    return values


def parse_text(variable: TemplateVariable, text: str) -> object:
    """Return *text*, a command-line value, converted to the type of *variable*. A text that cannot be converted is returned as it is."""
    try:
        match variable.type:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
            case "string":
                return text
    except ValueError:
        return text


def make_sample_values(variables: Mapping[str, TemplateVariable]) -> dict[str, TemplateValue | None]:
    """Return sample values of the variables: the default, the first allowed value, or any value of the type."""
    return {name: _make_sample_value(variable) for name, variable in variables.items()}


def _make_sample_value(variable: TemplateVariable) -> TemplateValue:
    if variable.default is not None:
        return variable.default
    return variable.enum[0] if variable.enum else _SAMPLE_VALUES[variable.type]


def _find_misfits(variable: TemplateVariable, value: object) -> list[str]:
    if not _has_type(variable.type, value):
        return [f"must be {_TYPE_NAMES[variable.type]}"]
    max_length = MAX_VALUE_LENGTH if variable.pattern is None else MAX_MATCHED_LENGTH
    if isinstance(value, str) and len(value) > max_length:
        return [f"must have at most {max_length:,} characters"]
    if variable.required and variable.enum is None and isinstance(value, str) and not value.strip():
        return ["must not be blank"]
    if variable.enum is not None and value not in variable.enum:
        more = ", …" if len(variable.enum) > _MAX_LISTED_CHOICES else ""
        return [f"must be one of {', '.join(map(_quote, variable.enum[:_MAX_LISTED_CHOICES]))}{more}"]
    if variable.pattern is not None and isinstance(value, str) and not _matches(variable.pattern, value):
        return [f"must match {variable.pattern}"]
    return []


def _has_type(kind: VariableType, value: object) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INTEGER
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MAX_INTEGER
        case "boolean":
            return isinstance(value, bool)


def _is_pattern(pattern: str) -> bool:
    return len(pattern) <= MAX_PATTERN_LENGTH and _compile(pattern) is not None and _compile(_anchor(pattern)) is not None


def _matches(pattern: str, text: str) -> bool:
    compiled = _compile(_anchor(pattern))
    return compiled is not None and compiled.is_valid(text)


def _anchor(pattern: str) -> str:
    return f"^(?:{pattern})$"


def _compile(pattern: str) -> jsonschema_rs.Validator | None:
    """Return a matcher for *pattern* that takes linear time, or None if it is invalid. Python's `re` can take exponential time."""
    bounds = jsonschema_rs.RegexOptions(size_limit=_MAX_REGEX_BYTES, dfa_size_limit=_MAX_REGEX_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=bounds)
    except (ValueError, jsonschema_rs.ValidationError):
        return None


def _describe_unknown(name: str, variables: Mapping[str, TemplateVariable]) -> str:
    return f"unknown variable{suggest(name, variables)}"


def _quote(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
