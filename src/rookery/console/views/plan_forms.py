"""The forms that create a plan: by hand, and from a template."""

from __future__ import annotations

from starlette.responses import Response

from rookery.console.arguments import parse_variable
from rookery.console.visit import PER_PAGE, PageLinks, SubmittedForm, View, Visit, get_field_errors
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import inputs, models


async def show_new(visit: Visit) -> Response:
    """Show the form of a new plan."""
    return visit.render("plans/new.html", fields={}, errors={})


async def create(visit: Visit) -> Response:
    """Create a plan of the phases and tasks of the form."""
    form = await visit.form()
    phases = parse_outline(form.get_text("outline"))
    try:
        plan = await visit.client.plans.create_plan(
            title=form.get("title"),
            description=form.get_text("description") or UNSET,
            org=form.get("org") or UNSET,
            project=form.get("project") or UNSET,
            status="active" if form.get("start") else "draft",
            phases=phases or UNSET,
        )
    except ApiError as error:
        return visit.render("plans/new.html", status=error.status, fields=form.as_dict(), errors=get_field_errors(error))
    return visit.redirect(f"plans/{plan.slug}", done="created")


def parse_outline(text: str) -> list[inputs.PhaseBody]:
    """
    Return the phases of an outline: a line is a phase, and a line that begins with `-` or `*` a task of the phase above it.

    Tasks before the first phase belong to a phase "Tasks". Empty lines are skipped.
    """
    phases = list[tuple[str, list[str]]]()
    for line in text.splitlines():
        words = line.strip()
        if not words:
            continue
        if words[0] not in "-*":
            phases.append((words, []))
            continue
        if not phases:
            phases.append(("Tasks", []))
        if task := words[1:].strip():
            phases[-1][1].append(task)
    return [{"name": name, "tasks": tasks} for name, tasks in phases]


async def list_templates(visit: Visit) -> Response:
    """Show the templates from which plans are created."""
    page = await visit.client.templates.list_templates(page=visit.page_number, per_page=PER_PAGE, q=visit.query("q") or UNSET)
    return visit.render("plans/templates.html", templates=page.items, links=PageLinks.of(visit, page), q=visit.query("q"))


async def show_template(visit: Visit) -> Response:
    """Show a template with the form of its variables."""
    template = await visit.client.templates.get_template(visit.path("template"))
    return visit.render("plans/from_template.html", plan_template=template, fields={}, errors={})


async def create_from_template(visit: Visit) -> Response:
    """Create a plan from a template with the variables of the form."""
    form = await visit.form()
    template = await visit.client.templates.get_template(visit.path("template"))
    try:
        plan = await visit.client.templates.create_plan_from_template(
            template.slug,
            variables=_read_variables(template, form),
            title=form.get("title") or UNSET,
            project=form.get("project") or UNSET,
            status="active" if form.get("start") else "draft",
        )
    except ApiError as error:
        errors = get_field_errors(error)
        return visit.render("plans/from_template.html", status=error.status, plan_template=template, fields=form.as_dict(), errors=errors)
    return visit.redirect(f"plans/{plan.slug}", done="created")


def _read_variables(template: models.Template, form: SubmittedForm) -> dict[str, object]:
    """Return the variables that the form gives. Numbers and booleans are sent as such. Any other text is sent as it is."""
    values: dict[str, object] = {}
    for name, variable in template.variables.items():
        text = form.get_text(f"variables.{name}").strip()
        if text:
            values[name] = parse_variable(variable.type, text)
    return values


VIEWS = (
    View("GET", "/plans/-/new", show_new, "plans.write"),
    View("POST", "/plans/-/new", create, "plans.write"),
    View("GET", "/plans/-/templates", list_templates, "templates.read"),
    View("GET", "/plans/-/templates/{template}", show_template, "templates.read"),
    View("POST", "/plans/-/templates/{template}", create_from_template, "templates.instantiate"),
)
