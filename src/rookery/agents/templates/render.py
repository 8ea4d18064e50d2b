"""Rendering of a template with values to the fields of a new plan. Pure: no I/O, no settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template
from rookery.kernel.placeholders import TemplateValue, fill_placeholders, find_placeholder_faults, find_placeholder_names
from rookery.kernel.variables import complete_values, find_variable_faults, make_sample_values

GUIDELINES_HEADING = "## Guidelines"
"""The heading of the template's guidelines in the description of the plan."""


_TYPED_FIELDS = frozenset({"priority"})


def render_template(stored_template: StoredTemplate, given_values: Mapping[str, object]) -> RenderedTemplate:
    """
    Return the template with its variables filled in. The values are validated, the rendered plan is not.

    Raises:
        ValidationFailed: A variable is unknown, missing or invalid, or the rendered template is too long.
    """
    values = complete_values(stored_template.template.variables, given_values)
    return RenderedTemplate(
        stored_template=stored_template,
        variables={name: value for name, value in values.items() if value is not None},
        plan=_render_plan(stored_template.template, values),
    )


def render_sample_plan(template: Template) -> JsonObject:
    """Return the plan fields rendered with sample values, to check that the template can produce a valid plan."""
    return _render_plan(template, make_sample_values(template.variables))


def find_faults(template: Template) -> dict[str, list[str]]:
    """Return the errors in the variables and placeholders of a template by field, empty if it has none."""
    faults = {
        f"variables.{name}": variable_faults
        for name, variable in template.variables.items()
        if (variable_faults := find_variable_faults(variable))
    }
    for field, value in _collect_texts(template).items():
        faults |= find_placeholder_faults(value, template.variables, field=field)
    return faults


def list_unused_variables(template: Template) -> list[str]:
    """Return the variables that no placeholder uses."""
    used_names = find_placeholder_names(_collect_texts(template))
    return [name for name in template.variables if name not in used_names]


def _render_plan(template: Template, values: Mapping[str, TemplateValue | None]) -> JsonObject:
    parts = cast("Mapping[str, JsonObject]", fill_placeholders(_collect_texts(template), values, typed_fields=_TYPED_FIELDS))
    plan, guidelines = parts["plan"], cast("list[str]", parts["guidelines"])
    paragraphs = [str(plan["description"])] if plan.get("description") else []
    if guidelines:
        paragraphs.append("\n".join((GUIDELINES_HEADING, "", *(f"- {guideline}" for guideline in guidelines))))
    return {"title": parts["name"], **plan, "description": "\n\n".join(paragraphs), "phases": parts["phases"]}


def _collect_texts(template: Template) -> JsonObject:
    """Return the parts of a template that can contain placeholders. The name is one of them, since it is the default title."""
    return {"name": template.name, "plan": template.plan, "guidelines": template.guidelines, "phases": template.phases}
