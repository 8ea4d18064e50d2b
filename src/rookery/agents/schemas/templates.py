"""
What callers send and are answered about templates (D-63). A template's file is read by `TemplateBody` too.

The texts of a template are longer or shorter once they are filled in, so the bounds here are wide, and what comes of them is held
against those of a new plan: with sample values when a template is written, with the real ones when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from rookery.agents.models.drafts import PlanDraft
from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateValue, TemplateVersion
from rookery.agents.plans.factory import validate_dependencies, validate_size
from rookery.agents.schemas.plans import Metadata, Org, PlanBody, Project, Title
from rookery.agents.schemas.plans import Slug as PlanSlug
from rookery.agents.schemas.plans import Text as PlanText
from rookery.agents.templates.placeholders import NAME_PATTERN
from rookery.agents.templates.render import find_faults, render_sample_plan
from rookery.agents.templates.variables import MAX_PATTERN_LENGTH
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.pagination import Links, Meta, PageQuery
from rookery.kernel.schema import QueryModel, RequestModel, ResponseModel, Timestamp, map_validation_error

SLUG_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$"
MAX_TEMPLATE_BYTES = 256 * 1024

_MAX_LINE_LENGTH, _MAX_PROSE_LENGTH = 1_000, 50_000


def _require_not_blank(text: str) -> str:
    if not text.strip():
        msg = "must not be blank"
        raise ValueError(msg)
    return text


def _from_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _from_text(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


def _require_reference(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > _MAX_LINE_LENGTH:
        msg = "must be a key, a name or a position"
        raise ValueError(msg)
    return value


def _require_priority(value: object) -> object:
    if (isinstance(value, str) and value.strip().startswith("{{")) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    msg = "must be a number, or a placeholder of one"
    raise ValueError(msg)


Slug = Annotated[
    str, Field(pattern=SLUG_PATTERN, description="Its name in addresses: small letters, digits and dashes.", examples=["hotfix"])
]
Version = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="A version: a hash of what the template says.")]
Category = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$", description="What it is for, to list by.", examples=["engineering"])]
Line = Annotated[str, Field(min_length=1, max_length=_MAX_LINE_LENGTH), AfterValidator(_require_not_blank)]
Prose = Annotated[str, Field(max_length=_MAX_PROSE_LENGTH)]
VariableName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Values = Annotated[
    dict[str, object],
    Field(max_length=200, description="A value for each variable; what has a default may be left out.", examples=[{"summary": "No tea"}]),
]


Ref = Annotated[object, AfterValidator(_require_reference)]


Ignored = Annotated[object, Field(description="Read-only; ignored.")]


class VariableBody(RequestModel):
    """What a template asks whoever uses it; without a default it is required, unless `required` is false."""

    description: Annotated[str, Field(max_length=_MAX_LINE_LENGTH, description="What to give, for whoever fills it in.")] = ""
    type: Annotated[Literal["string", "integer", "number", "boolean"], Field(description="What it is.")] = "string"
    required: Annotated[bool | None, Field(description="Whether it must be given; by default, if it has no default.")] = None
    default: Annotated[object, Field(description="What stands for it when it is not given.")] = None
    enum: Annotated[list[object] | None, Field(min_length=1, max_length=100, description="All that it may be.")] = None
    pattern: (
        Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_LENGTH, description="What all of a text must match, as RE2 reads it.")]
        | None
    ) = None


class TemplateCriterion(RequestModel):
    """Something that must be true of finished work."""

    text: Line


TemplateCriterionInput = Annotated[TemplateCriterion, BeforeValidator(_from_text, json_schema_input_type=str | TemplateCriterion)]
Criteria = Annotated[list[TemplateCriterionInput], Field(max_length=50, description="What must be true of finished work.")]


class TemplateTask(RequestModel):
    """A task of a template, as that of a new plan; its texts may have placeholders."""

    name: Line
    key: Annotated[Line | None, Field(description="What `depends_on` of others calls it.")] = None
    description: Prose = ""
    priority: Annotated[
        object, Field(description="0 is the most urgent, 4 the least; or a placeholder."), AfterValidator(_require_priority)
    ] = 2
    notes: Prose = ""
    depends_on: Annotated[list[Ref], Field(max_length=100)] = Field(default_factory=list[object])
    acceptance_criteria: Criteria = Field(default_factory=list[TemplateCriterion])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])


TemplateTaskInput = Annotated[TemplateTask, BeforeValidator(_from_name, json_schema_input_type=str | TemplateTask)]


class TemplatePhase(RequestModel):
    """A phase of a template, as that of a new plan; its texts may have placeholders. A task may be just its name."""

    name: Line
    key: Annotated[Line | None, Field(description="What `depends_on` of others calls it.")] = None
    description: Prose = ""
    depends_on: Annotated[list[Ref], Field(max_length=100)] = Field(default_factory=list[object])
    acceptance_criteria: Criteria = Field(default_factory=list[TemplateCriterion])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])
    tasks: Annotated[list[TemplateTaskInput], Field(max_length=500)] = Field(default_factory=list[TemplateTask])


class PlanOfTemplate(RequestModel):
    """What the plan itself is to be; without a title it is called as the template."""

    title: Annotated[str, Field(min_length=1, max_length=_MAX_LINE_LENGTH)] | None = None
    description: Prose | None = None
    metadata: dict[str, object] | None = None


class TemplateFields(RequestModel):
    """All of a template but its slug. `{{ name }}` in a text of the plan, the guidelines or the phases stands for a variable."""

    name: Annotated[Line, Field(description="What it is called.", examples=["Hotfix"])]
    description: Annotated[str, Field(max_length=2_000, description="When to use it.")] = ""
    category: Category | None = None
    variables: Annotated[dict[VariableName, VariableBody], Field(max_length=50, description="What is asked of whoever uses it.")] = Field(
        default_factory=dict[str, VariableBody]
    )
    guidelines: Annotated[list[Line], Field(max_length=50, description="How to work; they go into the plan's description.")] = Field(
        default_factory=list[str]
    )
    plan: PlanOfTemplate | None = None
    phases: Annotated[list[TemplatePhase], Field(min_length=1, max_length=100)]

    def to_document(self) -> JsonObject:
        """Return it as it is kept: what was not said is left out, so that the version is of what was."""
        return self.model_dump(mode="json", exclude_none=True, exclude_unset=True, include=set(TemplateFields.model_fields))

    def validate_renders(self) -> None:
        """
        Do nothing if a plan can be made of it.

        Raises:
            ValidationFailed: As `must_work`.
        """
        validate_document(self.to_document())


class TemplateBody(TemplateFields):
    """A new template."""

    slug: Slug


class TemplatePut(TemplateFields):
    """A template as GET shows it, or without the read-only fields, which are ignored; only the slug must be that of the address."""

    slug: str | None = None
    source: Ignored = None
    version: Ignored = None
    phase_names: Ignored = None
    tasks: Ignored = None
    created_at: Ignored = None
    updated_at: Ignored = None

    def require_slug(self, slug: str) -> None:
        """
        Do nothing if it names no other template than the one of *slug*.

        Raises:
            ValidationFailed: It does.
        """
        if self.slug not in {None, slug}:
            raise ValidationFailed({"slug": [f"must be {slug!r}, the template of the address, or be left out; a slug never changes"]})


def validate_document(document: JsonObject) -> None:
    """
    Do nothing if a plan can be made of *document*, which has a template's form.

    Raises:
        ValidationFailed: A variable or a placeholder is not valid, or what comes of sample values is no plan.
    """
    template = Template.from_document("", document)
    wrong = find_faults(template)
    if wrong:
        raise ValidationFailed(wrong)
    _parse_draft(render_sample_plan(template), prefix="plan.")


def parse_template(document: JsonObject) -> TemplateBody:
    """
    Return *document*, of a file, as the template that it is.

    Raises:
        ValidationFailed: It is none, by field, or no plan can be made of it.
    """
    try:
        body = TemplateBody.model_validate(document)
    except ValidationError as error:
        raise map_validation_error(error, TemplateBody) from None
    body.validate_renders()
    return body


class CopyBody(RequestModel):
    """What a copy of a template is called."""

    slug: Slug
    name: Line | None = None


class PreviewBody(RequestModel):
    """Values to fill a template in with."""

    variables: Values = Field(default_factory=dict[str, object])
    version: Version | None = None


class UseBody(PreviewBody):
    """Values to fill a template in with, and what the plan has that is not the template's to say."""

    title: Annotated[Title, Field(description="Instead of the template's.")] | None = None
    description: Annotated[PlanText, Field(description="Instead of the template's, guidelines included.")] | None = None
    slug: PlanSlug | None = None
    status: Annotated[Literal["draft", "active"], Field(description="A draft is worked on only by who names it.")] = "draft"
    org: Org | None = None
    project: Project | None = None
    metadata: Annotated[Metadata, Field(description="Beside the template's.")] | None = None

    def to_draft(self, rendered: RenderedTemplate) -> PlanDraft:
        """
        Return the plan that is to be made of *rendered*.

        Raises:
            ValidationFailed: What came of the values is no plan.
        """
        own = self.model_dump(exclude={"variables", "version", "metadata"}, exclude_none=True)
        metadata = {**cast("Mapping[str, object]", rendered.plan.get("metadata") or {}), **(self.metadata or {})}
        made = _parse_draft({**rendered.plan, **own, "metadata": metadata})
        template = rendered.stored_template.template.slug
        return replace(made, template=template, template_version=rendered.stored_template.version, variables=rendered.variables)


class TemplatesQuery(PageQuery):
    """Which templates to list."""

    category: Category | None = None
    q: Annotated[str, Field(max_length=200, description="Words of its slug, name or description.")] = ""


class TemplateQuery(QueryModel):
    """Which version to show; by default the one in use."""

    version: Version | None = None


class VariableResponse(ResponseModel):
    """What a template asks."""

    description: str
    type: str
    required: bool
    default: TemplateValue | None
    enum: list[TemplateValue] | None
    pattern: str | None


class TemplateSummary(ResponseModel):
    """A template in a list."""

    slug: str
    name: str
    description: str
    category: str | None
    source: Annotated[str, Field(description="shipped with Rookery, and read-only, or the workspace's own.")]
    version: str
    variables: dict[str, VariableResponse]
    phases: Annotated[list[str], Field(description="As phase_names.", deprecated=True)]
    phase_names: list[str]
    tasks: Annotated[int, Field(description="How many there are.")]
    created_at: Timestamp | None
    updated_at: Timestamp | None


class TemplateResponse(ResponseModel):
    """A template, whole; it can be sent back with PUT."""

    slug: str
    name: str
    description: str
    category: str | None
    source: str
    version: str
    variables: dict[str, VariableResponse]
    guidelines: list[str]
    plan: dict[str, object]
    phases: list[dict[str, object]]
    phase_names: list[str]
    tasks: Annotated[int, Field(description="How many there are.")]
    created_at: Timestamp | None
    updated_at: Timestamp | None


class AgentsVersionResponse(ResponseModel):
    """A version that is kept."""

    version: str
    created_at: Timestamp | None
    in_use: bool


class VersionsResponse(ResponseModel):
    """A page of the versions that are kept, the one in use first (D-12)."""

    data: list[AgentsVersionResponse]
    links: Links
    meta: Meta
    versions: Annotated[list[AgentsVersionResponse], Field(description="All of them, whatever the page; read data.", deprecated=True)]
    count: Annotated[int, Field(description="As meta.total.", deprecated=True)]


class PreviewResponse(ResponseModel):
    """What `POST …/plans` would make."""

    template: str
    version: str
    variables: dict[str, TemplateValue]
    plan: Annotated[dict[str, object], Field(description="As the body of POST /plans.")]


def to_template_summary(stored: StoredTemplate) -> TemplateSummary:
    """Return a template as lists show it."""
    template = stored.template
    return TemplateSummary.model_construct(
        slug=template.slug,
        name=template.name,
        description=template.description,
        category=template.category or None,
        source=stored.source.value,
        version=stored.version,
        variables=_to_variable_responses(template),
        phases=_list_phase_names(template),
        phase_names=_list_phase_names(template),
        tasks=_count_tasks(template),
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )


def to_template_response(stored: StoredTemplate) -> TemplateResponse:
    """Return a template, whole."""
    template = stored.template
    return TemplateResponse.model_construct(
        slug=template.slug,
        name=template.name,
        description=template.description,
        category=template.category or None,
        source=stored.source.value,
        version=stored.version,
        variables=_to_variable_responses(template),
        guidelines=list(template.guidelines),
        plan=cast("dict[str, object]", template.plan),
        phases=cast("list[dict[str, object]]", list(template.phases)),
        phase_names=_list_phase_names(template),
        tasks=_count_tasks(template),
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )


def to_version_responses(stored: StoredTemplate, versions: Sequence[TemplateVersion]) -> list[AgentsVersionResponse]:
    """Return the versions of a template."""
    return [
        AgentsVersionResponse.model_construct(version=each.version, created_at=each.created_at, in_use=each.version == stored.version)
        for each in versions
    ]


def to_preview_response(rendered: RenderedTemplate) -> PreviewResponse:
    """
    Return what a filled in template would make.

    Raises:
        ValidationFailed: What came of the values is no plan.
    """
    _parse_draft(rendered.plan)
    return PreviewResponse.model_construct(
        template=rendered.stored_template.template.slug,
        version=rendered.stored_template.version,
        variables=dict(rendered.variables),
        plan=dict(rendered.plan),
    )


def _parse_draft(plan: JsonObject, *, prefix: str = "") -> PlanDraft:
    """
    Return *plan* as one to be made, held against all that is asked of a new plan.

    Raises:
        ValidationFailed: It would be none. *prefix* is put before the fields that a template has in `plan`.
    """
    try:
        draft = PlanBody.model_validate(plan).to_draft()
    except ValidationError as error:
        wrong = map_validation_error(error, PlanBody)
        fields = cast("Mapping[str, list[str]]", wrong.detail["errors"])
        raise ValidationFailed(
            {name if name.startswith("phases") else f"{prefix}{name}": texts for name, texts in fields.items()}
        ) from None
    validate_size(draft)
    validate_dependencies(draft)
    return draft


def _list_phase_names(template: Template) -> list[str]:
    return [str(phase["name"]) for phase in template.phases]


def _count_tasks(template: Template) -> int:
    return sum(len(cast("list[object]", phase.get("tasks", ()))) for phase in template.phases)


def _to_variable_responses(template: Template) -> dict[str, VariableResponse]:
    return {
        name: VariableResponse.model_construct(
            description=each.description,
            type=each.type,
            required=each.required,
            default=each.default,
            enum=None if each.enum is None else list(each.enum),
            pattern=each.pattern,
        )
        for name, each in template.variables.items()
    }
