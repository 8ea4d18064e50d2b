"""Rules of templates without a server: placeholders, variables and template files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.agents.models.templates import StoredTemplate, Template, TemplateSource, TemplateValue, TemplateVariable, VariableType
from rookery.agents.schemas.templates import parse_template
from rookery.agents.templates.library import compute_version, load_shipped_templates
from rookery.agents.templates.placeholders import MAX_RENDERED_LENGTH, fill_placeholders, find_placeholder_faults, find_placeholder_names
from rookery.agents.templates.render import GUIDELINES_HEADING, list_unused_variables, render_template
from rookery.agents.templates.template_files import MAX_FILE_BYTES, parse_template_file, render_template_file
from rookery.agents.templates.variables import MAX_MATCHED_LENGTH, complete_values, find_variable_faults, parse_text
from rookery.kernel.errors import ValidationFailed

EIGHT = ["bug-fix", "dependency-update", "docs-sync", "feature", "incident", "refactor", "release", "test-gaps"]

texts = st.text(max_size=30)
braces = st.text(alphabet="{} \\abn", max_size=30)
plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain, inner, max_size=4),
    max_leaves=12,
)


def make_kept(**fields: object) -> StoredTemplate:
    """A template of one phase with one task."""
    document = {"name": "Hotfix", "phases": [{"name": "Do", "tasks": [{"name": "It"}]}], **fields}
    return StoredTemplate(
        template=Template.from_document("hotfix", document), version=compute_version(document), source=TemplateSource.WORKSPACE
    )


@given(first=texts | braces, second=texts | braces)
def test_a_value_is_inserted_once_and_never_read_again(first: str, second: str) -> None:
    """D-63: whatever a value has in it, `{{ name }}` too, stays what it is."""
    values: dict[str, TemplateValue | None] = {"a": first, "b": second}

    assert fill_placeholders("<{{ a }}|{{b}}>", values) == f"<{first}|{second}>"
    assert fill_placeholders(["{{ a }}", {"text": "{{ b }}{{ a }}"}], values) == [first, {"text": second + first}]


@given(text=st.text(st.characters(exclude_characters="{")))
def test_a_text_without_placeholders_stays(text: str) -> None:
    """D-63: `{{ name }}` is all there is."""
    assert fill_placeholders(text, {}) == text
    assert find_placeholder_names(text) == set()
    assert find_placeholder_faults(text, {}) == {}


@given(text=braces)
def test_what_has_no_fault_can_be_filled_in_and_leaves_no_name(text: str) -> None:
    """D-63: whatever is written, it is refused or understood; every name in it was known."""
    known = {"a": "1", "b": "2", "n": "3", "ab": "4"}
    wrong = find_placeholder_faults(text, known)

    assert bool(wrong) or find_placeholder_names(text) <= known.keys()
    if not wrong:
        assert isinstance(fill_placeholders(text, known), str)


@pytest.mark.parametrize(
    "text", ["{{ a.b }}", "{{ a | upper }}", "{{ 1a }}", "{{}}", "{{ A }}", "{{ a", "{{% if %}}", "{{ a\n}}", "${{ secrets.X }}"]
)
def test_what_only_looks_like_a_placeholder_is_refused(text: str) -> None:
    """D-63: no expressions; a mistake is told where it stands, not found in a plan later."""
    wrong = find_placeholder_faults({"phases": [{"name": text}]}, {"a": "x"})

    assert list(wrong) == ["phases.0.name"]
    assert r"\{{" in wrong["phases.0.name"][0]


def test_two_braces_can_be_meant() -> None:
    r"""D-63: `\{{` is two braces that mean nothing, as workflows of other programs have them."""
    text = r"env: $\{{ secrets.TOKEN }}"

    assert find_placeholder_faults(text, {}) == {}
    assert fill_placeholders(text, {}) == "env: ${{ secrets.TOKEN }}"


def test_a_priority_may_come_from_a_variable() -> None:
    """D-63: inserted first, then validated; the number stays one where a number is wanted, and is text in a text."""
    assert fill_placeholders({"priority": "{{ n }}", "name": "{{ n }}"}, {"n": 3}) == {"priority": 3, "name": "3"}


def test_filling_in_is_bounded() -> None:
    """D-16: placeholders and values that multiply each other are refused before they are built."""
    text = "{{ a }}" * 5_000

    with pytest.raises(ValidationFailed, match=f"{MAX_RENDERED_LENGTH:,}"):
        fill_placeholders({"description": text}, {"a": "x" * 10_000})


_VALUES: list[tuple[VariableType, list[object], list[object]]] = [
    ("string", ["x", "{{ a }}"], ["", " \n", 1, True, 1.5, ["x"], [{}]]),
    ("integer", [0, -5], ["1", True, 1.5, 2**60, ["1"]]),
    ("number", [0, 1.5], ["1", False, 1e300, float("nan"), [1]]),
    ("boolean", [True, False], [1, 0, "true", [True]]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), _VALUES)
def test_a_value_is_of_its_variables_type(kind: VariableType, good: list[object], bad: list[object]) -> None:
    """D-63: no silent conversion."""
    variables = {"v": TemplateVariable(type=kind, required=True)}

    assert [complete_values(variables, {"v": each})["v"] for each in good] == good
    for each in bad:
        with pytest.raises(ValidationFailed) as refused:
            complete_values(variables, {"v": each})
        assert list(_errors(refused.value)) == ["variables.v"]


def test_everything_that_is_wrong_with_values_is_told_at_once() -> None:
    """D-63: unknown or missing is 422, by name, with the nearest known one."""
    variables = {
        "summary": TemplateVariable(required=True, description="What is wrong."),
        "level": TemplateVariable(enum=("low", "high"), default="low"),
        "version": TemplateVariable(pattern=r"[0-9]+\.[0-9]+", required=True),
    }

    with pytest.raises(ValidationFailed) as refused:
        complete_values(variables, {"sumary": "x", "level": "hig", "version": "1.2 and more"})

    assert _errors(refused.value) == {
        "variables.sumary": ["unknown variable; did you mean 'summary'?"],
        "variables.summary": ["is required: What is wrong."],
        "variables.level": ["must be one of 'low', 'high'"],
        "variables.version": [r"must match [0-9]+\.[0-9]+"],
    }


def test_null_is_as_not_given_and_a_default_stands_in() -> None:
    """D-63: a default; what is optional and has none is left empty."""
    variables = {"a": TemplateVariable(default="x"), "b": TemplateVariable(), "c": TemplateVariable(default=False, type="boolean")}

    assert complete_values(variables, {"a": None}) == {"a": "x", "b": None, "c": False}
    assert fill_placeholders("{{ a }}/{{ b }}/{{ c }}", complete_values(variables, {})) == "x//false"


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|a)*", "(a|aa)+", "([a-z]+)*", ".*.*.*.*=.*"])
def test_no_pattern_makes_a_value_expensive(pattern: str) -> None:
    """D-16: patterns are matched in linear time; Python's own would be at these for longer than a test may take."""
    variables = {"v": TemplateVariable(pattern=pattern)}

    with pytest.raises(ValidationFailed):
        complete_values(variables, {"v": "a" * (MAX_MATCHED_LENGTH - 1) + "!"})


def test_only_short_values_are_held_against_a_pattern() -> None:
    """D-16: linear in length times the size of the pattern's machine, which together held the server up for 12 s."""
    with pytest.raises(ValidationFailed, match="at most 500 characters"):
        complete_values({"v": TemplateVariable(pattern="a*")}, {"v": "a" * (MAX_MATCHED_LENGTH + 1)})


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", "a)|(b", "(?<=x)y", "a{1000}{1000}", "[ab]*a[ab]{8000}", "x" * 501])
def test_a_pattern_that_cannot_be_matched_so_is_refused_when_it_is_written(pattern: str) -> None:
    """D-63: look-around and back references are what takes exponential time."""
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
def test_a_variable_that_contradicts_itself_is_refused(variable: TemplateVariable) -> None:
    """D-63: found when the template is written, not when it is used."""
    assert find_variable_faults(variable) != []


@given(value=st.integers(-(2**53), 2**53) | st.booleans() | st.floats(-1e9, 1e9) | texts)
def test_a_command_line_means_what_json_does(value: float | str) -> None:
    """D-63: `--var n=3` is the number where a number is asked for, and never another value."""
    kind: VariableType = (
        "boolean"
        if isinstance(value, bool)
        else "integer"
        if isinstance(value, int)
        else "number"
        if isinstance(value, float)
        else "string"
    )
    written = json.dumps(value) if not isinstance(value, str) else value

    assert parse_text(TemplateVariable(type=kind), written) == value


@given(document=st.dictionaries(plain, documents, max_size=5))
def test_a_file_that_we_write_is_read_as_what_it_was(document: dict[str, object]) -> None:
    """D-63: `show` writes what `add` reads."""
    assert parse_template_file(render_template_file(document)) == document


@given(document=st.dictionaries(plain, documents, max_size=5))
def test_json_is_read_too(document: dict[str, object]) -> None:
    """D-63: YAML or JSON."""
    assert parse_template_file(json.dumps(document)) == document


def test_yaml_is_read_as_a_person_means_it() -> None:
    """D-63: a `no`, a date, a time and a leading zero are texts; only JSON's own numbers are numbers."""
    read = parse_template_file("a: no\nb: 2026-01-01\nc: 1:30\nd: 010\ne: 1e3\nf: 12\ng: 0.5\nh: true\ni: ~\nj:\nk: on")

    assert read == {
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
    ("text", "says"),
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
def test_what_no_person_writes_is_refused_with_its_line(text: str, says: str) -> None:
    """D-16: a file cannot run code, take the stack, stand for gigabytes, or say a thing twice."""
    with pytest.raises(ValidationFailed, match="file: ") as refused:
        parse_template_file(text)

    assert says in refused.value.message


def test_guidelines_stand_in_the_plans_description() -> None:
    """D-63: the plan describes how to work."""
    kept = make_kept(
        variables={"who": {}},
        guidelines=["Ask {{ who }}.", "Be kind."],
        plan={"title": "For {{ who }}", "description": "About {{ who }}."},
    )

    plan = render_template(kept, {"who": "Kim"}).plan

    assert plan["title"] == "For Kim"
    assert plan["description"] == f"About Kim.\n\n{GUIDELINES_HEADING}\n\n- Ask Kim.\n- Be kind."


def test_a_plan_without_a_title_is_called_as_its_template() -> None:
    """D-63: a template needs a name and phases, and nothing else."""
    named = make_kept(name="Mend {{ what }}", variables={"what": {}})

    assert render_template(named, {"what": "it"}).plan["title"] == "Mend it"
    assert list_unused_variables(named.template) == []
    assert render_template(make_kept(), {}).plan == {
        "title": "Hotfix",
        "description": "",
        "phases": [{"name": "Do", "tasks": [{"name": "It"}]}],
    }


def test_the_version_is_of_what_is_said() -> None:
    """D-63: each content hash is a version; the order of fields says nothing."""
    one = {"name": "a", "phases": [{"name": "b", "key": "c"}]}
    same = {"phases": [{"key": "c", "name": "b"}], "name": "a"}

    assert compute_version(one) == compute_version(same)
    assert compute_version(one) != compute_version({**one, "name": "A"})


def test_eight_templates_ship_and_each_is_good() -> None:
    """Issue 6: eight that a working team would use; every variable is described and stands somewhere."""
    assert list(load_shipped_templates()) == EIGHT
    for slug, kept in load_shipped_templates().items():
        body = parse_template({"slug": slug, **kept.template.document})
        assert compute_version(body.to_document()) == kept.version, slug
        assert list_unused_variables(kept.template) == [], slug
        assert all(each.description for each in kept.template.variables.values()), slug
        assert kept.template.guidelines, slug
        assert sum(each.required for each in kept.template.variables.values()) in {1, 2, 3}, slug


def _errors(error: ValidationFailed) -> dict[str, list[str]]:
    found = error.detail["errors"]
    assert isinstance(found, dict)
    return found  # pyright: ignore[reportUnknownVariableType] - by field
