"""From a template and values to what a new plan is made of (D-63). Pure: no I/O, no settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateValue
from rookery.agents.templates.placeholders import fill_placeholders, find_placeholder_faults, find_placeholder_names
from rookery.agents.templates.variables import complete_values, find_variable_faults, make_sample_values

GUIDELINES_HEADING = "## Guidelines"
"""The heading in a plan's description under which those of its template stand: whoever opens the plan reads them there."""


def render_template(stored: StoredTemplate, given_values: Mapping[str, object]) -> RenderedTemplate:
    """
    Return the template with its variables filled in: checked values, once inserted; what came of it is not judged here.

    Raises:
        ValidationFailed: A variable is unknown, missing, or not what it may be; or the whole would be too long.
    """
    values = complete_values(stored.template.variables, given_values)
    return RenderedTemplate(
        stored_template=stored,
        variables={name: value for name, value in values.items() if value is not None},
        plan=_render_plan(stored.template, values),
    )


def render_sample_plan(template: Template) -> JsonObject:
    """Return what a new plan would be made of with sample values, to see whether a template can work at all."""
    return _render_plan(template, make_sample_values(template.variables))


def find_faults(template: Template) -> dict[str, list[str]]:
    """Return what is wrong with a template's variables and placeholders, by field; empty: nothing."""
    found = {f"variables.{name}": wrong for name, each in template.variables.items() if (wrong := find_variable_faults(each))}
    for field, value in _collect_texts(template).items():
        found |= find_placeholder_faults(value, template.variables, field=field)
    return found


def list_unused_variables(template: Template) -> list[str]:
    """Return the variables that stand nowhere in a template: asked for, and of no effect."""
    used = find_placeholder_names(_collect_texts(template))
    return [name for name in template.variables if name not in used]


def _render_plan(template: Template, values: Mapping[str, TemplateValue | None]) -> JsonObject:
    parts = cast("Mapping[str, JsonObject]", fill_placeholders(_collect_texts(template), values))
    plan, guidelines = parts["plan"], cast("list[str]", parts["guidelines"])
    about = [str(plan["description"])] if plan.get("description") else []
    if guidelines:
        about.append("\n".join((GUIDELINES_HEADING, "", *(f"- {each}" for each in guidelines))))
    return {"title": parts["name"], **plan, "description": "\n\n".join(about), "phases": parts["phases"]}


def _collect_texts(template: Template) -> JsonObject:
    """Return all that may have placeholders: what plans are made of, its name too, which is the title of those that get no other."""
    return {"name": template.name, "plan": template.plan, "guidelines": template.guidelines, "phases": template.phases}
