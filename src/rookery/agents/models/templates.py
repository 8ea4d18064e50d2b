"""Plan templates and their versions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import cast

from rookery.kernel.placeholders import TemplateValue, TemplateVariable, VariableType

JsonObject = Mapping[str, object]


class TemplateSource(StrEnum):
    """The origin of a template. Templates shipped with Rookery are read-only."""

    SHIPPED = "shipped"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """
    One version of a template.

    Attributes:
        plan: Fields of the new plan, such as its title. Texts contain placeholders, also in *phases*.
        phases: The phases, in the format of a request to create a plan.
        document: The complete template as written, without the slug. Its hash is the version.
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

    @property
    def phase_names(self) -> list[str]:
        return [str(phase["name"]) for phase in self.phases]

    @property
    def task_count(self) -> int:
        """The number of tasks in all phases."""
        return sum(len(cast("Sequence[object]", phase.get("tasks", ()))) for phase in self.phases)

    def is_equivalent_to(self, other: Template) -> bool:
        """Return True if both have the same content, even if only one of them spells out the defaults."""
        return replace(self, document={}) == replace(other, document={})

    @classmethod
    def from_document(cls, slug: str, document: JsonObject) -> Template:
        """Return the template that *document* describes. The document must be valid."""
        return cls(
            slug=slug,
            name=cast("str", document["name"]),
            description=cast("str", document.get("description", "")),
            category=cast("str", document.get("category", "")),
            variables={
                name: _variable_from_document(fields)
                for name, fields in cast("Mapping[str, JsonObject]", document.get("variables", {})).items()
            },
            guidelines=tuple(cast("Sequence[str]", document.get("guidelines", ()))),
            plan=cast("JsonObject", document.get("plan", {})),
            phases=cast("Sequence[JsonObject]", document["phases"]),
            document=document,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTemplate:
    """A template of a workspace or a shipped one. *version* is the hash of its document."""

    template: Template
    version: str
    source: TemplateSource
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVersion:
    """A version of a template and the time it became the current one. *created_at* is None for shipped templates."""

    version: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedTemplate:
    """A template with its variables filled in. *plan* is the body of the equivalent `POST /plans`."""

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
