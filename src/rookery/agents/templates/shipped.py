"""The templates that come with Rookery: files of this package, read when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import cast

from rookery.agents.models.templates import JsonObject, StoredTemplate, Template, TemplateSource
from rookery.agents.templates.template_files import parse_template_file
from rookery.agents.templates.versions import compute_version

_FOLDER_NAME = "shipped"


@cache
def load_shipped_templates() -> Mapping[str, StoredTemplate]:
    """Return the templates that come with Rookery, by slug, in that order; the tests hold each against what is asked of any template."""
    folder = resources.files("rookery.agents") / _FOLDER_NAME
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name)
    found = [(each.name.removesuffix(".yaml"), _normalize(parse_template_file(each.read_text(encoding="utf-8")))) for each in files]
    return MappingProxyType(
        {
            slug: StoredTemplate(
                template=Template.from_document(slug, document), version=compute_version(document), source=TemplateSource.SHIPPED
            )
            for slug, document in found
        }
    )


def _normalize(document: JsonObject) -> JsonObject:
    """Return *document* with each criterion as an object, as those that workspaces write are kept: a copy then is the same version."""
    return cast("JsonObject", _expand_criteria(document))


def _expand_criteria(value: object, field: str = "") -> object:
    if isinstance(value, dict):
        return {name: _expand_criteria(each, name) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        if field == "acceptance_criteria":
            return [{"text": each} for each in items]
        return [_expand_criteria(each) for each in items]
    return value
