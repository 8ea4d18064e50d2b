"""
Request and response models of templates. `TemplateBody` also validates template files.

Filling in placeholders changes the length of texts, so the limits here are wide. The limits of a new plan are checked on the
rendered plan: with sample values when a template is stored, with the real values when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field, ValidationError

from rookery.agents.models.drafts import PlanDraft
from rookery.agents.models.drafts import Slug as PlanSlug
from rookery.agents.models.plans import Metadata, Org, Project, Title
from rookery.agents.models.plans import Text as PlanText
from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateVersion
from rookery.agents.plans.plan_builder import validate_dependencies, validate_size
from rookery.agents.schemas.plans import PlanBody
from rookery.agents.templates.render import find_faults, render_sample_plan
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import NAME_PATTERN, TemplateValue
from rookery.kernel.schema import Links, Meta, NotBlank, PageQuery, QueryModel, RequestModel, ResponseModel, Timestamp, map_validation_error
from rookery.kernel.variables import MAX_PATTERN_LENGTH

SLUG_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$"
MAX_TEMPLATE_BYTES = 256 * 1024

_MAX_LINE_LENGTH, _MAX_PROSE_LENGTH = 1_000, 50_000


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
    msg = "must be a number or a placeholder"
    raise ValueError(msg)


Slug = Annotated[
    str,
    Field(
        pattern=SLUG_PATTERN, description="The name of the template in URLs: lower-case letters, digits and hyphens.", examples=["hotfix"]
    ),
]
Version = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="A version: a hash of the content of the template.")]
Category = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$", description="The category, a filter of lists.", examples=["engineering"])
]
Line = Annotated[str, Field(min_length=1, max_length=_MAX_LINE_LENGTH), NotBlank]
Prose = Annotated[str, Field(max_length=_MAX_PROSE_LENGTH)]
VariableName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Values = Annotated[
    dict[str, object],
    Field(
        max_length=200, description="Values by variable name. Variables with a default can be omitted.", examples=[{"summary": "No tea"}]
    ),
]


Ref = Annotated[object, AfterValidator(_require_reference)]


Ignored = Annotated[object, Field(description="Read-only; ignored.")]


class VariableBody(RequestModel):
    """A variable of a template. Without a default it is required, unless `required` is false."""

    description: Annotated[str, Field(max_length=_MAX_LINE_LENGTH, description="What value to give, for the user of the template.")] = ""
    type: Annotated[Literal["string", "integer", "number", "boolean"], Field(description="The type of the value.")] = "string"
    required: Annotated[bool | None, Field(description="Whether a value is required. Default: true if there is no default.")] = None
    default: Annotated[object, Field(description="The value if none is given.")] = None
    enum: Annotated[list[object] | None, Field(min_length=1, max_length=100, description="The allowed values.")] = None
    pattern: (
        Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_LENGTH, description="An RE2 pattern that the whole string must match.")]
        | None
    ) = None


class TemplateCriterion(RequestModel):
    """An acceptance criterion."""

    text: Line


TemplateCriterionInput = Annotated[TemplateCriterion, BeforeValidator(_from_text, json_schema_input_type=Line | TemplateCriterion)]
Criteria = Annotated[list[TemplateCriterionInput], Field(max_length=50, description="Conditions that finished work meets.")]


class TemplateTask(RequestModel):
    """A task of a template, in the format of a new plan. Its texts can contain placeholders."""

    name: Line
    key: Annotated[Line | None, Field(description="A short name for use in `depends_on`.")] = None
    description: Prose = ""
    priority: Annotated[
        object, Field(description="From 0, the most urgent, to 4, the least urgent; or a placeholder."), AfterValidator(_require_priority)
    ] = 2
    notes: Prose = ""
    depends_on: Annotated[list[Ref], Field(max_length=100)] = Field(default_factory=list[object])
    acceptance_criteria: Criteria = Field(default_factory=list[TemplateCriterion])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])


TemplateTaskInput = Annotated[TemplateTask, BeforeValidator(_from_name, json_schema_input_type=Line | TemplateTask)]


class TemplatePhase(RequestModel):
    """A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a name."""

    name: Line
    key: Annotated[Line | None, Field(description="A short name for use in `depends_on`.")] = None
    description: Prose = ""
    depends_on: Annotated[list[Ref], Field(max_length=100)] = Field(default_factory=list[object])
    acceptance_criteria: Criteria = Field(default_factory=list[TemplateCriterion])
    metadata: dict[str, object] = Field(default_factory=dict[str, object])
    tasks: Annotated[list[TemplateTaskInput], Field(max_length=500)] = Field(default_factory=list[TemplateTask])


class PlanOfTemplate(RequestModel):
    """The fields of the new plan. The default title is the name of the template."""

    title: Annotated[str, Field(min_length=1, max_length=_MAX_LINE_LENGTH)] | None = None
    description: Prose | None = None
    metadata: dict[str, object] | None = None


class TemplateFields(RequestModel):
    """A template without its slug. `{{ name }}` in the texts of plan, guidelines and phases is replaced by the variable `name`."""

    name: Annotated[Line, Field(description="The name of the template.", examples=["Hotfix"])]
    description: Annotated[str, Field(max_length=2_000, description="When to use it.")] = ""
    category: Category | None = None
    variables: Annotated[dict[VariableName, VariableBody], Field(max_length=50, description="The variables by name.")] = Field(
        default_factory=dict[str, VariableBody]
    )
    guidelines: Annotated[
        list[Line], Field(max_length=50, description="Rules for the work. They are added to the description of the plan.")
    ] = Field(default_factory=list[str])
    plan: PlanOfTemplate | None = None
    phases: Annotated[list[TemplatePhase], Field(min_length=1, max_length=100)]

    def to_document(self) -> JsonObject:
        """Return the document to store. It has only the fields that were sent, and the version is their hash."""
        return self.model_dump(mode="json", exclude_none=True, exclude_unset=True, include=set(TemplateFields.model_fields))

    def validate_renders(self) -> None:
        """
        Check that the template renders to a valid plan.

        Raises:
            ValidationFailed: As for `validate_document`.
        """
        validate_document(self.to_document())


class TemplateBody(TemplateFields):
    """A new template."""

    slug: Slug


class TemplatePut(TemplateFields):
    """A template as GET returns it. Read-only fields are optional and ignored. A slug must equal the one in the URL."""

    slug: str | None = None
    source: Ignored = None
    version: Ignored = None
    phase_names: Ignored = None
    tasks: Ignored = None
    created_at: Ignored = None
    updated_at: Ignored = None

    def require_slug(self, slug: str) -> None:
        """
        Check that the slug of the body is missing or equal to *slug*.

        Raises:
            ValidationFailed: The body has another slug.
        """
        if self.slug not in {None, slug}:
            raise ValidationFailed({"slug": [f"must be {slug!r} as in the URL, or omitted; the slug of a template cannot be changed"]})


def validate_document(document: JsonObject) -> None:
    """
    Check that *document*, a template, renders to a valid plan.

    Raises:
        ValidationFailed: A variable or a placeholder is invalid, or the plan rendered with sample values is.
    """
    template = Template.from_document("", document)
    faults = find_faults(template)
    if faults:
        raise ValidationFailed(faults)
    _parse_draft(render_sample_plan(template), prefix="plan.")


def parse_template(document: JsonObject) -> TemplateBody:
    """
    Return the template of a parsed file.

    Raises:
        ValidationFailed: A field is invalid, or the template does not render to a valid plan.
    """
    try:
        body = TemplateBody.model_validate(document)
    except ValidationError as error:
        raise map_validation_error(error, TemplateBody) from None
    body.validate_renders()
    return body


class CopyBody(RequestModel):
    """The slug and the name of a copy."""

    slug: Slug
    name: Line | None = None


class PreviewBody(RequestModel):
    """The values of the variables of a template."""

    variables: Values = Field(default_factory=dict[str, object])
    version: Version | None = None


class UseBody(PreviewBody):
    """The values of the variables of a template, and fields of the new plan."""

    title: Annotated[Title, Field(description="Replaces the title of the template.")] | None = None
    description: Annotated[PlanText, Field(description="Replaces the description of the template, including the guidelines.")] | None = None
    slug: PlanSlug | None = None
    status: Annotated[
        Literal["draft", "active"],
        Field(description="Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session."),
    ] = "draft"
    org: Org | None = None
    project: Project | None = None
    metadata: Annotated[Metadata, Field(description="Added to the metadata of the template.")] | None = None

    def to_draft(self, rendered: RenderedTemplate) -> PlanDraft:
        """
        Return the draft of the plan.

        Raises:
            ValidationFailed: The rendered plan is invalid.
        """
        fields = self.model_dump(exclude={"variables", "version", "metadata"}, exclude_none=True)
        metadata = {**cast("Mapping[str, object]", rendered.plan.get("metadata") or {}), **(self.metadata or {})}
        draft = _parse_draft({**rendered.plan, **fields, "metadata": metadata})
        return replace(draft, template=rendered.stored_template, variables=rendered.variables)


class TemplatesQuery(PageQuery):
    """Filters of the list of templates."""

    category: Category | None = None
    q: Annotated[str, Field(max_length=200, description="Words to find in the slug, name or description.")] = ""


class TemplateQuery(QueryModel):
    """The version to return; by default the current one."""

    version: Version | None = None


class VariableResponse(ResponseModel):
    """A variable of a template."""

    description: str
    type: str
    required: bool
    default: TemplateValue | None
    enum: list[TemplateValue] | None
    pattern: str | None


def _from_template(name: str) -> object:
    """Return the annotation of a field that is read from the content of the template."""
    return Field(validation_alias=AliasPath("template", name))


class TemplateSummary(ResponseModel):
    """A template in a list."""

    slug: Annotated[str, _from_template("slug")]
    name: Annotated[str, _from_template("name")]
    description: Annotated[str, _from_template("description")]
    category: Annotated[str | None, _from_template("category"), BeforeValidator(lambda category: category or None)]
    source: Annotated[str, Field(description="shipped: comes with Rookery and is read-only; workspace: belongs to the workspace.")]
    version: str
    variables: Annotated[dict[str, VariableResponse], _from_template("variables")]
    phase_names: Annotated[list[str], _from_template("phase_names")]
    tasks: Annotated[int, Field(description="The number of tasks.", validation_alias=AliasPath("template", "task_count"))]
    created_at: Timestamp | None
    updated_at: Timestamp | None


class TemplateResponse(TemplateSummary):
    """A complete template. It can be sent back with PUT."""

    guidelines: Annotated[list[str], _from_template("guidelines")]
    plan: Annotated[dict[str, object], _from_template("plan")]
    phases: Annotated[list[dict[str, object]], _from_template("phases")]


class AgentsVersionResponse(ResponseModel):
    """A stored version of a template."""

    version: str
    created_at: Timestamp | None
    in_use: bool


class VersionsResponse(ResponseModel):
    """A page of the stored versions, the current one first."""

    data: list[AgentsVersionResponse]
    links: Links
    meta: Meta


class PreviewResponse(ResponseModel):
    """The plan that `POST …/plans` would create."""

    template: Annotated[str, Field(validation_alias=AliasPath("stored_template", "template", "slug"))]
    version: Annotated[str, Field(validation_alias=AliasPath("stored_template", "version"))]
    variables: dict[str, TemplateValue]
    plan: Annotated[dict[str, object], Field(description="The body of the equivalent POST /plans.")]


def to_version_responses(stored_template: StoredTemplate, versions: Sequence[TemplateVersion]) -> list[AgentsVersionResponse]:
    return [
        AgentsVersionResponse.model_construct(
            version=version.version, created_at=version.created_at, in_use=version.version == stored_template.version
        )
        for version in versions
    ]


def to_preview_response(rendered: RenderedTemplate) -> PreviewResponse:
    """
    Return the response for a rendered template.

    Raises:
        ValidationFailed: The rendered plan is invalid.
    """
    _parse_draft(rendered.plan)
    return PreviewResponse.model_validate(rendered, from_attributes=True)


def _parse_draft(plan: JsonObject, *, prefix: str = "") -> PlanDraft:
    """
    Return the draft of *plan* after all checks of a new plan.

    Args:
        prefix: A prefix for the names of invalid fields outside of `phases`.

    Raises:
        ValidationFailed: The plan is invalid.
    """
    try:
        draft = PlanBody.model_validate(plan).to_draft()
    except ValidationError as error:
        validation_error = map_validation_error(error, PlanBody)
        fields = validation_error.field_errors
        raise ValidationFailed(
            {name if name.startswith("phases") else f"{prefix}{name}": texts for name, texts in fields.items()}
        ) from None
    validate_size(draft)
    validate_dependencies(draft)
    return draft
