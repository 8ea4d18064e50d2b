"""From a template and values to what a new plan is made of (D-63). Pure: no I/O, no settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rookery.agents.models.templates import Filled, JsonObject, KeptTemplate, Scalar, Template
from rookery.agents.templates.placeholders import faults_in, fill, names_in
from rookery.agents.templates.variables import complete, faults_of, sample

GUIDELINES = "## Guidelines"
"""The heading in a plan's description under which those of its template stand: whoever opens the plan reads them there."""


def filled(kept: KeptTemplate, given: Mapping[str, object]) -> Filled:
    """
    Return the template with its variables filled in: checked values, once inserted; what came of it is not judged here.

    Raises:
        ValidationFailed: A variable is unknown, missing, or not what it may be; or the whole would be too long.
    """
    values = complete(kept.template.variables, given)
    return Filled(
        kept=kept,
        variables={name: value for name, value in values.items() if value is not None},
        plan=_plan(kept.template, values),
    )


def tried(template: Template) -> JsonObject:
    """Return what a new plan would be made of with sample values, to see whether a template can work at all."""
    return _plan(template, sample(template.variables))


def faults(template: Template) -> dict[str, list[str]]:
    """Return what is wrong with a template's variables and placeholders, by field; empty: nothing."""
    found = {f"variables.{name}": wrong for name, each in template.variables.items() if (wrong := faults_of(each))}
    for field, value in _texts(template).items():
        found |= faults_in(value, template.variables, at=field)
    return found


def idle(template: Template) -> list[str]:
    """Return the variables that stand nowhere in a template: asked for, and of no effect."""
    used = names_in(_texts(template))
    return [name for name in template.variables if name not in used]


def _plan(template: Template, values: Mapping[str, Scalar | None]) -> JsonObject:
    parts = cast("Mapping[str, JsonObject]", fill(_texts(template), values))
    plan, guidelines = parts["plan"], cast("list[str]", parts["guidelines"])
    about = [str(plan["description"])] if plan.get("description") else []
    if guidelines:
        about.append("\n".join((GUIDELINES, "", *(f"- {each}" for each in guidelines))))
    return {"title": parts["name"], **plan, "description": "\n\n".join(about), "phases": parts["phases"]}


def _texts(template: Template) -> JsonObject:
    """Return all that may have placeholders: what plans are made of, its name too, which is the title of those that get no other."""
    return {"name": template.name, "plan": template.plan, "guidelines": template.guidelines, "phases": template.phases}
