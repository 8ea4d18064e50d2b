"""What the variables of a template may be, and what is wrong with values that were given for them (D-63). Pure: no I/O, no settings."""

from __future__ import annotations

from collections.abc import Mapping

import jsonschema_rs

from rookery.agents.models.templates import Scalar, Variable, VariableType
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.suggestions import did_you_mean

LONGEST_VALUE = 10_000
LONGEST_PATTERN = 500

LONGEST_MATCHED = 500
"""Characters of a value that a pattern is held against: linear is not little, it is length times the size of the pattern's machine."""

_LARGEST_MACHINE = 256 * 1024
"""Bytes of a compiled pattern: `a{1000}{1000}` is no pattern but an attack, and so is `[ab]*a[ab]{8000}`, for fifty variables."""

_MOST_NEAREST = 10
_LARGEST_INTEGER = 2**53
_SHOWN = 20

_SAMPLES: Mapping[VariableType, Scalar] = {"string": "x", "integer": 1, "number": 1.5, "boolean": True}
_CALLED: Mapping[VariableType, str] = {"string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def faults_of(variable: Variable) -> list[str]:
    """Return what is wrong with a variable itself."""
    faults: list[str] = []
    if variable.required and variable.default is not None:
        faults.append("has a default, so it is not required; leave one of them out")
    if variable.pattern is not None:
        if variable.type != "string":
            faults.append(f"pattern: is for a text, not for {_CALLED[variable.type]}")
        elif not _is_pattern(variable.pattern):
            faults.append("pattern: is no regular expression as RE2 reads them (no look-around, no back references), or too large")
            return faults
    enum = variable.enum or ()
    faults += [f"enum: {_shown(each)} is not {_CALLED[variable.type]}" for each in enum if not _is_of(variable.type, each)]
    if not faults and len(set(enum)) < len(enum):
        faults.append("enum: has a value twice")
    if variable.default is not None and not faults:
        faults += [f"default: {fault}" for fault in _misfits(variable, variable.default)]
    return faults


def complete(variables: Mapping[str, Variable], given: Mapping[str, object]) -> dict[str, Scalar | None]:
    """
    Return a value for each of *variables*: what is *given*, else its default, else None. Null is as not given.

    Raises:
        ValidationFailed: With all that is wrong, by `variables.{name}`: unknown, missing, or not what it may be.
    """
    errors: dict[str, list[str]] = {}
    for number, name in enumerate(name for name in given if name not in variables):
        errors[f"variables.{name[:100]}"] = [_unknown(name, variables if number < _MOST_NEAREST else {})]
    values: dict[str, Scalar | None] = {}
    for name, variable in variables.items():
        value = given.get(name)
        if value is None:
            values[name] = variable.default
            if variable.required:
                errors[f"variables.{name}"] = ["is required" + (f": {variable.description}" if variable.description else "")]
            continue
        misfits = _misfits(variable, value)
        if misfits:
            errors[f"variables.{name}"] = misfits
        elif isinstance(value, (str, int, float)):
            values[name] = value
    if errors:
        raise ValidationFailed(errors)
    return values


def read_text(variable: Variable, text: str) -> object:
    """Return what *text*, of a command line, means for *variable*; the text itself if it means nothing, which is told then as a misfit."""
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


def sample(variables: Mapping[str, Variable]) -> dict[str, Scalar | None]:
    """Return values with which a template can be tried: a default, a choice, or anything of the type."""
    return {name: _sample(variable) for name, variable in variables.items()}


def _sample(variable: Variable) -> Scalar:
    if variable.default is not None:
        return variable.default
    return variable.enum[0] if variable.enum else _SAMPLES[variable.type]


def _misfits(variable: Variable, value: object) -> list[str]:
    if not _is_of(variable.type, value):
        return [f"must be {_CALLED[variable.type]}"]
    longest = LONGEST_VALUE if variable.pattern is None else LONGEST_MATCHED
    if isinstance(value, str) and len(value) > longest:
        return [f"must have at most {longest:,} characters"]
    if variable.required and variable.enum is None and isinstance(value, str) and not value.strip():
        return ["must not be blank"]
    if variable.enum is not None and value not in variable.enum:
        more = ", …" if len(variable.enum) > _SHOWN else ""
        return [f"must be one of {', '.join(map(_shown, variable.enum[:_SHOWN]))}{more}"]
    if variable.pattern is not None and isinstance(value, str) and not _matches(variable.pattern, value):
        return [f"must match {variable.pattern}"]
    return []


def _is_of(kind: VariableType, value: object) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER
        case "boolean":
            return isinstance(value, bool)


def _is_pattern(pattern: str) -> bool:
    return len(pattern) <= LONGEST_PATTERN and _compiled(pattern) is not None and _compiled(_whole(pattern)) is not None


def _matches(pattern: str, text: str) -> bool:
    compiled = _compiled(_whole(pattern))
    return compiled is not None and compiled.is_valid(text)


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


def _compiled(pattern: str) -> jsonschema_rs.Validator | None:
    """Return what matches *pattern* in linear time, whatever the text: Python's own `re` takes for ever over `(a+)+$`."""
    bounds = jsonschema_rs.RegexOptions(size_limit=_LARGEST_MACHINE, dfa_size_limit=_LARGEST_MACHINE)
    try:
        return jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=bounds)
    except (ValueError, jsonschema_rs.ValidationError):
        return None


def _unknown(name: str, variables: Mapping[str, Variable]) -> str:
    return f"unknown variable{did_you_mean(name, variables)}"


def _shown(value: object) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 100 else f"{shown[:99]}…"
