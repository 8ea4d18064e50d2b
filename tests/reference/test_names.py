"""One name for one thing: docs/reference/names.md against the API description, the built-in tools and the commands."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.reference.downgrade import Schema
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform
from tests.conftest import Instance
from tests.documentation import ROOT, all_commands, table

_NAMES = table(ROOT / "docs" / "reference" / "names.md", "Word")
_CODE = re.compile(r"`(\w+)`")
_SPAN = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Schema:
    """The API description."""
    mounted = build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("data"))))
    return build_document(mounted.endpoints, public_url=lambda _: "http://localhost:8400")


@pytest.mark.parametrize("row", _NAMES, ids=lambda row: cast("list[str]", row)[2].strip("`"))
def test_another_name_is_used_only_where_the_table_lists_it(document: Schema, row: list[str]) -> None:
    """State and status, ips and ip_list, q and query, limits: every use of another name is in the table."""
    (other,) = _CODE.findall(row[2])

    assert _places(document, other) == set(_CODE.findall(row[3]))


@pytest.mark.parametrize("row", _NAMES, ids=lambda row: cast("list[str]", row)[2].strip("`"))
def test_tools_and_commands_use_another_name_only_where_the_table_lists_it(row: list[str]) -> None:
    """Arguments of the built-in tools and options of the commands have the names of the API."""
    (other,) = _CODE.findall(row[2])

    assert _tools(other) | _commands(other) == set(_SPAN.findall(row[4]))


@pytest.mark.parametrize("path", ["/v1/tasks", "/api/agent/tasks"])
async def test_tasks_are_listed_by_state(instance: Instance, path: str) -> None:
    """`GET /tasks?state=ready`. The state of a task is its status, or ready or blocked."""
    created = await instance.admin.post(
        "/v1/plans", {"title": "Move", "status": "active", "phases": [{"name": "Pack", "tasks": ["Boxes"]}]}
    )
    assert created.status_code == 201

    tasks = await instance.admin.get(f"{path}?state=ready")
    assert [task["name"] for task in tasks.json()["data"]] == ["Boxes"]
    assert (await instance.admin.get(f"{path}?state=completed")).json()["data"] == []


@pytest.mark.parametrize(
    ("path", "rejected", "meant"),
    [
        ("/v1/tasks", "status", "state"),
        ("/api/agent/plans/move/phases/1/tasks", "status", "state"),
        ("/api/v1/webhooks/any/deliveries", "state", "status"),
    ],
)
async def test_the_other_name_of_a_filter_is_rejected_with_the_right_one(instance: Instance, path: str, rejected: str, meant: str) -> None:
    """An unknown parameter is a 422 that names the nearest."""
    response = await instance.admin.get(f"{path}?{rejected}=pending")

    assert (response.status_code, response.json()["errors"]) == (422, {rejected: [f"unknown field; did you mean {meant!r}?"]})


@cache
def _tool_arguments() -> Mapping[str, Collection[str]]:
    """Return the names of the arguments of each built-in tool. Building the platform opens nothing."""
    with tempfile.TemporaryDirectory() as folder:
        servers = build_platform(Settings(data_dir=Path(folder))).tool_servers
    return {
        f"{server.id}/{tool.name}": cast("Schema", tool.input_schema["properties"]).keys() for server in servers for tool in server.tools()
    }


def _tools(name: str) -> set[str]:
    """Return the built-in tools with an argument of this name."""
    return {tool for tool, arguments in _tool_arguments().items() if name in arguments}


def _commands(name: str) -> set[str]:
    """Return the commands with an option of this name; without their arguments."""
    option = "--" + name.replace("_", "-")
    return {" ".join(part for part in command.split() if not part.isupper()) for command, options in all_commands() if option in options}


def _places(document: Schema, name: str) -> set[str]:
    """Return the operations with a parameter of the query, and the schemas with a field, of this name."""
    paths = cast("dict[str, dict[str, Schema]]", document["paths"])
    schemas = cast("dict[str, dict[str, Schema]]", cast("Schema", document["components"])["schemas"])
    users = {schema for schema, properties in schemas.items() if name in properties.get("properties", {})}
    for item in paths.values():
        for method, operation in item.items():
            parameters = [] if method == "servers" else cast("list[Schema]", operation.get("parameters", []))
            if any(parameter.get("name") == name and parameter.get("in") == "query" for parameter in parameters):
                users.add(cast("str", operation["operationId"]))
    return users
