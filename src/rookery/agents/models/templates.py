"""The nouns of templates (D-63). No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal, cast

JsonObject = Mapping[str, object]
TemplateValue = str | int | float | bool
VariableType = Literal["string", "integer", "number", "boolean"]


class TemplateSource(StrEnum):
    """Who wrote a template: we, then it is read-only, or the workspace."""

    SHIPPED = "shipped"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVariable:
    """
    What a template asks whoever uses it.

    Attributes:
        default: What stands for it when it is not given; None: nothing does, it is left empty, unless it is required.
        enum: All that it may be; None: anything of its type.
        pattern: What a whole text must match, as RE2 reads it, which takes linear time; None: anything.
    """

    description: str = ""
    type: VariableType = "string"
    required: bool = False
    default: TemplateValue | None = None
    enum: tuple[TemplateValue, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """
    One version of a template.

    Attributes:
        plan: Fields of the plan that is made: its title, description…; texts have placeholders still, as in *phases*.
        phases: As the phases of a new plan are sent.
        document: All of it as it was written, without the slug; the version is its hash.
    """

    slug: str
    name: str
    description: str
    category: str
    variables: Mapping[str, TemplateVariable]
    guidelines: tuple[str, ...]
    plan: JsonObject
    phases: Sequence[JsonObject]
    document: JsonObject

    def is_equivalent_to(self, other: Template) -> bool:
        """Return whether both say the same, though defaults are written out in one of them."""
        return replace(self, document={}) == replace(other, document={})

    @classmethod
    def from_document(cls, slug: str, document: JsonObject) -> Template:
        """Return the template that *document* describes; it was found to be one before it was kept."""
        return cls(
            slug=slug,
            name=cast("str", document["name"]),
            description=cast("str", document.get("description", "")),
            category=cast("str", document.get("category", "")),
            variables={
                name: _variable_from_document(each)
                for name, each in cast("Mapping[str, JsonObject]", document.get("variables", {})).items()
            },
            guidelines=tuple(cast("Sequence[str]", document.get("guidelines", ()))),
            plan=cast("JsonObject", document.get("plan", {})),
            phases=cast("Sequence[JsonObject]", document["phases"]),
            document=document,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTemplate:
    """A template as a workspace has it; *version* is the hash of its document."""

    template: Template
    version: str
    source: TemplateSource
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVersion:
    """When a version became the one in use; one that we ship always was."""

    version: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedTemplate:
    """A template with its variables given: what `POST /plans` would be sent, and the values that it was made with."""

    stored_template: StoredTemplate
    variables: Mapping[str, TemplateValue] = field(default_factory=dict[str, TemplateValue])
    plan: JsonObject = field(default_factory=dict[str, object])


def _variable_from_document(document: JsonObject) -> TemplateVariable:
    enum, default = cast("Sequence[TemplateValue] | None", document.get("enum")), cast("TemplateValue | None", document.get("default"))
    return TemplateVariable(
        description=cast("str", document.get("description", "")),
        type=cast("VariableType", document.get("type", "string")),
        required=cast("bool", document.get("required", default is None)),
        default=default,
        enum=None if enum is None else tuple(enum),
        pattern=cast("str | None", document.get("pattern")),
    )
