"""The templates that come with Rookery: files of this package, read when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import cast

from rookery.agents.models.templates import JsonObject, KeptTemplate, Template, TemplateSource
from rookery.agents.templates.files import read_file
from rookery.agents.templates.versions import version_of

_FOLDER = "shipped"


@cache
def shipped() -> Mapping[str, KeptTemplate]:
    """Return the templates that come with Rookery, by slug, in that order; the tests hold each against what is asked of any template."""
    folder = resources.files("rookery.agents") / _FOLDER
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name)
    found = [(each.name.removesuffix(".yaml"), _whole(read_file(each.read_text(encoding="utf-8")))) for each in files]
    return MappingProxyType(
        {
            slug: KeptTemplate(template=Template.of(slug, document), version=version_of(document), source=TemplateSource.SHIPPED)
            for slug, document in found
        }
    )


def _whole(document: JsonObject) -> JsonObject:
    """Return *document* with each criterion as an object, as those that workspaces write are kept: a copy then is the same version."""
    return cast("JsonObject", _written_out(document))


def _written_out(value: object, field: str = "") -> object:
    if isinstance(value, dict):
        return {name: _written_out(each, name) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        if field == "acceptance_criteria":
            return [{"text": each} for each in items]
        return [_written_out(each) for each in items]
    return value
