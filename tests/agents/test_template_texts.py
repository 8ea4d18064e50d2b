"""Templates without a server: placeholders, variables and template files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.agents.models.templates import StoredTemplate, Template, TemplateSource
from rookery.agents.schemas.templates import parse_template
from rookery.agents.templates.library import compute_version, load_shipped_templates
from rookery.agents.templates.render import GUIDELINES_HEADING, list_unused_variables, render_template
from rookery.agents.templates.template_files import MAX_FILE_BYTES, parse_template_file, render_template_file
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import MAX_RENDERED_LENGTH, fill_placeholders, find_placeholder_faults, find_placeholder_names
from rookery.kernel.variables import (
    MAX_MATCHED_LENGTH,
    TemplateValue,
    TemplateVariable,
    VariableType,
    complete_values,
    find_variable_faults,
    parse_text,
)

EIGHT = ["bug-fix", "dependency-update", "docs-sync", "feature", "incident", "refactor", "release", "test-gaps"]

texts = st.text(max_size=30)
braces = st.text(alphabet="{} \\abn", max_size=30)
plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain, inner, max_size=4),
    max_leaves=12,
)


def stored_template(**fields: object) -> StoredTemplate:
    """Return a template of one phase with one task."""
    document = {"name": "Hotfix", "phases": [{"name": "Do", "tasks": [{"name": "It"}]}], **fields}
    return StoredTemplate(
        template=Template.from_document("hotfix", document), version=compute_version(document), source=TemplateSource.WORKSPACE
    )


@given(first=texts | braces, second=texts | braces)
def test_an_inserted_value_is_not_parsed_for_placeholders(first: str, second: str) -> None:
    """A value is inserted as it is, even if it contains `{{ name }}`."""
    values: dict[str, TemplateValue | None] = {"a": first, "b": second}

    assert fill_placeholders("<{{ a }}|{{b}}>", values) == f"<{first}|{second}>"
    assert fill_placeholders(["{{ a }}", {"text": "{{ b }}{{ a }}"}], values) == [first, {"text": second + first}]


@given(text=st.text(st.characters(exclude_characters="{")))
def test_a_text_without_placeholders_is_unchanged(text: str) -> None:
    """`{{ name }}` is the only syntax."""
    assert fill_placeholders(text, {}) == text
    assert find_placeholder_names(text) == set()
    assert find_placeholder_faults(text, {}) == {}


@given(text=braces)
def test_a_valid_text_can_be_filled_completely(text: str) -> None:
    """Any text is either rejected, or uses only known names."""
    values = {"a": "1", "b": "2", "n": "3", "ab": "4"}
    errors = find_placeholder_faults(text, values)

    assert bool(errors) or find_placeholder_names(text) <= values.keys()
    if not errors:
        assert isinstance(fill_placeholders(text, values), str)


@pytest.mark.parametrize(
    "text", ["{{ a.b }}", "{{ a | upper }}", "{{ 1a }}", "{{}}", "{{ A }}", "{{ a", "{{% if %}}", "{{ a\n}}", "${{ secrets.X }}"]
)
def test_an_invalid_placeholder_is_rejected(text: str) -> None:
    """Expressions are not supported. The error has the place in the template, so that the mistake is not found in a plan later."""
    errors = find_placeholder_faults({"phases": [{"name": text}]}, {"a": "x"})

    assert list(errors) == ["phases.0.name"]
    assert r"\{{" in errors["phases.0.name"][0]


def test_two_braces_can_be_escaped() -> None:
    r"""`\{{` is two braces that mean nothing, as workflows of other programs have them."""
    text = r"env: $\{{ secrets.TOKEN }}"

    assert find_placeholder_faults(text, {}) == {}
    assert fill_placeholders(text, {}) == "env: ${{ secrets.TOKEN }}"


def test_a_number_in_a_typed_field_stays_a_number() -> None:
    """Inserted first, then validated. The value stays a number in a number field, and is text within a text."""
    assert fill_placeholders({"priority": "{{ n }}", "name": "{{ n }}"}, {"n": 3}, typed_fields={"priority"}) == {
        "priority": 3,
        "name": "3",
    }


def test_the_length_of_a_filled_text_is_limited() -> None:
    """Placeholders and values whose product is too long are rejected before they are rendered."""
    text = "{{ a }}" * 5_000

    with pytest.raises(ValidationFailed, match=f"{MAX_RENDERED_LENGTH:,}"):
        fill_placeholders({"description": text}, {"a": "x" * 10_000})


_VALUES: list[tuple[VariableType, list[object], list[object]]] = [
    ("string", ["x", "{{ a }}"], ["", " \n", 1, True, 1.5, ["x"], [{}]]),
    ("integer", [0, -5], ["1", True, 1.5, 2**60, ["1"]]),
    ("number", [0, 1.5], ["1", False, 1e300, float("nan"), [1]]),
    ("boolean", [True, False], [1, 0, "true", [True]]),
]


@pytest.mark.parametrize(("kind", "valid_values", "invalid_values"), _VALUES)
def test_a_value_must_have_the_type_of_its_variable(kind: VariableType, valid_values: list[object], invalid_values: list[object]) -> None:
    """No silent conversion."""
    variables = {"v": TemplateVariable(type=kind, required=True)}

    assert [complete_values(variables, {"v": value})["v"] for value in valid_values] == valid_values
    for value in invalid_values:
        with pytest.raises(ValidationFailed) as error:
            complete_values(variables, {"v": value})
        assert list(_errors(error.value)) == ["variables.v"]


def test_all_errors_of_values_are_reported_together() -> None:
    """An unknown or missing variable is 422 with its name, and with the nearest known one."""
    variables = {
        "summary": TemplateVariable(required=True, description="What is wrong."),
        "level": TemplateVariable(enum=("low", "high"), default="low"),
        "version": TemplateVariable(pattern=r"[0-9]+\.[0-9]+", required=True),
    }

    with pytest.raises(ValidationFailed) as error:
        complete_values(variables, {"sumary": "x", "level": "hig", "version": "1.2 and more"})

    assert _errors(error.value) == {
        "variables.sumary": ["unknown variable; did you mean 'summary'?"],
        "variables.summary": ["is required: What is wrong."],
        "variables.level": ["must be one of 'low', 'high'"],
        "variables.version": [r"must match [0-9]+\.[0-9]+"],
    }


def test_null_means_the_default_value() -> None:
    """An optional variable without a default is empty."""
    variables = {"a": TemplateVariable(default="x"), "b": TemplateVariable(), "c": TemplateVariable(default=False, type="boolean")}

    assert complete_values(variables, {"a": None}) == {"a": "x", "b": None, "c": False}
    assert fill_placeholders("{{ a }}/{{ b }}/{{ c }}", complete_values(variables, {})) == "x//false"


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a|aa)+", "([a-z]+)*", ".*.*.*.*=.*"])
def test_every_pattern_is_matched_in_linear_time(pattern: str) -> None:
    """Python's own matching would take longer for these patterns than a test may."""
    variables = {"v": TemplateVariable(pattern=pattern)}

    with pytest.raises(ValidationFailed):
        complete_values(variables, {"v": "a" * (MAX_MATCHED_LENGTH - 1) + "!"})


def test_only_short_values_are_matched_against_a_pattern() -> None:
    """The time is the length times the size of the pattern, which blocked the server for 12 s."""
    with pytest.raises(ValidationFailed, match="at most 500 characters"):
        complete_values({"v": TemplateVariable(pattern="a*")}, {"v": "a" * (MAX_MATCHED_LENGTH + 1)})


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", "a)|(b", "(?<=x)y", "a{1000}{1000}", "[ab]*a[ab]{8000}", "x" * 501])
def test_a_pattern_without_linear_matching_is_rejected_in_the_template(pattern: str) -> None:
    """look-around and back references take exponential time."""
    assert find_variable_faults(TemplateVariable(pattern=pattern)) != []


@pytest.mark.parametrize(
    "variable",
    [
        TemplateVariable(required=True, default="x"),
        TemplateVariable(type="integer", default="x"),
        TemplateVariable(type="integer", pattern="1"),
        TemplateVariable(enum=("a", "a")),
        TemplateVariable(enum=("a", 1)),
        TemplateVariable(enum=("a", "b"), default="c"),
        TemplateVariable(pattern="a+", default="b"),
    ],
)
def test_a_contradictory_variable_is_rejected(variable: TemplateVariable) -> None:
    """When the template is stored, not when it is used."""
    assert find_variable_faults(variable) != []


@given(value=st.integers(-(2**53), 2**53) | st.booleans() | st.floats(-1e9, 1e9) | texts)
def test_a_value_on_the_command_line_is_parsed_by_its_type(value: float | str) -> None:
    """`--var n=3` is a number for a variable of that type."""
    kind: VariableType = (
        "boolean"
        if isinstance(value, bool)
        else "integer"
        if isinstance(value, int)
        else "number"
        if isinstance(value, float)
        else "string"
    )
    text = json.dumps(value) if not isinstance(value, str) else value

    assert parse_text(TemplateVariable(type=kind), text) == value


@given(document=st.dictionaries(plain, documents, max_size=5))
def test_a_written_template_file_is_parsed_to_the_same_document(document: dict[str, object]) -> None:
    """`show` writes what `add` reads."""
    assert parse_template_file(render_template_file(document)) == document


@given(document=st.dictionaries(plain, documents, max_size=5))
def test_a_template_file_may_be_json(document: dict[str, object]) -> None:
    """YAML or JSON."""
    assert parse_template_file(json.dumps(document)) == document


def test_ambiguous_yaml_values_are_text() -> None:
    """A `no`, a date, a time and a leading zero are text; only numbers of JSON are numbers."""
    document = parse_template_file("a: no\nb: 2026-01-01\nc: 1:30\nd: 010\ne: 1e3\nf: 12\ng: 0.5\nh: true\ni: ~\nj:\nk: on")

    assert document == {
        "a": "no",
        "b": "2026-01-01",
        "c": "1:30",
        "d": "010",
        "e": "1e3",
        "f": 12,
        "g": 0.5,
        "h": True,
        "i": None,
        "j": None,
        "k": "on",
    }


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("a: &x [1]\nb: *x", "line 1: anchors"),
        ("a: 1\nb: 2\na: 3", "line 3: 'a' occurs twice"),
        ("a: !!python/object/apply:os.system [ls]", "line 1: tags"),
        ("[" * 20_000, "nested"),
        ("a: [", "line 2"),
        ("1: 2", "must be a text"),
        ("- a", "not a template"),
        ("", "not a template"),
        ("a: 1\n---\nb: 2", "line 2"),
        ("a: \x07", "not valid YAML"),
        ('a: "\\0"', "NUL"),
        ("a: 1.0e999", "not finite"),
        ("a: 9999999999999999999", "more than 63 bits"),
        ('{"a": 18446744073709551615}', "more than 63 bits"),
        ('{"a": {"b": 1, "b": 2}}', "'b' occurs twice"),
        ('{"a": ' * 900 + "1" + "}" * 900, "nested"),
        ("a: \ud800", "surrogate"),
        ("x" * (MAX_FILE_BYTES + 1), "at most 256 KiB"),
    ],
)
def test_a_dangerous_file_is_rejected_with_its_line(text: str, expected_message: str) -> None:
    """A file cannot run code, exhaust the stack or the memory, or repeat a key."""
    with pytest.raises(ValidationFailed, match="file: ") as error:
        parse_template_file(text)

    assert expected_message in error.value.message


def test_guidelines_are_in_the_description_of_the_plan() -> None:
    """The plan describes how to work."""
    template = stored_template(
        variables={"who": {}},
        guidelines=["Ask {{ who }}.", "Be kind."],
        plan={"title": "For {{ who }}", "description": "About {{ who }}."},
    )

    plan = render_template(template, {"who": "Kim"}).plan

    assert plan["title"] == "For Kim"
    assert plan["description"] == f"About Kim.\n\n{GUIDELINES_HEADING}\n\n- Ask Kim.\n- Be kind."


def test_a_plan_without_a_title_gets_the_name_of_its_template() -> None:
    """A template needs only a name and phases."""
    template = stored_template(name="Repair {{ what }}", variables={"what": {}})

    assert render_template(template, {"what": "it"}).plan["title"] == "Repair it"
    assert list_unused_variables(template.template) == []
    assert render_template(stored_template(), {}).plan == {
        "title": "Hotfix",
        "description": "",
        "phases": [{"name": "Do", "tasks": [{"name": "It"}]}],
    }


def test_the_version_is_a_hash_of_the_content() -> None:
    """The order of fields does not matter."""
    document = {"name": "a", "phases": [{"name": "b", "key": "c"}]}
    reordered = {"phases": [{"key": "c", "name": "b"}], "name": "a"}

    assert compute_version(document) == compute_version(reordered)
    assert compute_version(document) != compute_version({**document, "name": "A"})


def test_eight_valid_templates_are_included() -> None:
    """Eight that a working team would use; every variable has a description and is used."""
    assert list(load_shipped_templates()) == EIGHT
    for slug, template in load_shipped_templates().items():
        body = parse_template({"slug": slug, **template.template.document})
        assert compute_version(body.to_document()) == template.version, slug
        assert list_unused_variables(template.template) == [], slug
        assert all(variable.description for variable in template.template.variables.values()), slug
        assert template.template.guidelines, slug
        assert sum(variable.required for variable in template.template.variables.values()) in {1, 2, 3}, slug


def _errors(error: ValidationFailed) -> dict[str, list[str]]:
    errors = error.detail["errors"]
    assert isinstance(errors, dict)
    return errors  # pyright: ignore[reportUnknownVariableType] - by field
