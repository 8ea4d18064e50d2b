"""The files of deploy/ as data: settings and addresses as the programs that read them would pass them on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

Node = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A process of Rookery as a file of deploy/ starts it: the words after `rookery`, and its variables."""

    where: str
    words: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def read_yaml(path: Path) -> list[Node]:
    """Return the documents of a file."""
    return [cast("Node", document) for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def get(node: object, *path: str | int) -> object:
    """Return what *path* leads to in a document, or None."""
    for step in path:
        if isinstance(step, int):
            members = cast("Sequence[object]", node) if isinstance(node, list) else ()
            node = members[step] if step < len(members) else None
        else:
            node = cast("Node", node).get(step) if isinstance(node, dict) else None
    return cast("object", node)


def items(node: object, *path: str | int) -> list[Node]:
    """Return the mappings of the list that *path* leads to."""
    return [cast("Node", item) for item in cast("Sequence[object]", get(node, *path) or [])]


def kubernetes_objects() -> list[Node]:
    """Return every object of deploy/kubernetes."""
    return [document for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for document in read_yaml(path)]


def find_objects(kind: str) -> dict[str, Node]:
    """Return the objects of a kind by name."""
    return {str(get(thing, "metadata", "name")): thing for thing in kubernetes_objects() if thing["kind"] == kind}


def compose_services(name: str) -> dict[str, Node]:
    """Return the services of a compose file."""
    (document,) = read_yaml(DEPLOY / name)
    return cast("dict[str, Node]", document["services"])


def image_variables() -> dict[str, str]:
    """Return what ENV of the Dockerfile sets."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    words = [word for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def list_deployments() -> Iterator[Deployment]:
    """Yield each process of Rookery that deploy/ starts."""
    image = image_variables()
    for name in ("compose.yaml", "compose.distributed.yaml"):
        for service, node in compose_services(name).items():
            if str(node["image"]).startswith("rookery:"):
                variables = {key: _interpolate(str(value)) for key, value in cast("Node", node.get("environment") or {}).items()}
                words = cast("Sequence[str]", node.get("command") or ["serve"])
                yield Deployment(where=f"{name} {service}", words=words, variables={**image, **variables})
    maps = {name: cast("Mapping[str, str]", thing["data"]) for name, thing in find_objects("ConfigMap").items()}
    for name, thing in find_objects("Deployment").items():
        for container in (*items(thing, "spec", "template", "spec", "initContainers"), *pod_containers(thing)):
            variables = {key: value for source in items(container, "envFrom") for key, value in maps[_map_of(source)].items()}
            words = cast("Sequence[str]", container["args"])
            yield Deployment(where=f"{name} {container['name']}", words=words, variables={**image, **variables})
    for path in sorted(DEPLOY.glob("*.service")):
        unit = read_unit(path)
        words = unit["ExecStart"][0].split()
        variables = dict(word.split("=", 1) for line in unit["Environment"] for word in line.split())
        yield Deployment(where=path.name, words=words[1:], variables=variables)


def pod_containers(thing: Node) -> list[Node]:
    """Return the containers of a Deployment, without those of its start."""
    return items(thing, "spec", "template", "spec", "containers")


def read_unit(path: Path) -> dict[str, list[str]]:
    """Return the values of a unit of systemd by key."""
    values: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            values.setdefault(key, []).append(value)
    return values


def _map_of(source: Node) -> str:
    return str(get(source, "configMapRef", "name"))


def _interpolate(value: str) -> str:
    """Replace the variables of the host as compose does, and `$$` by `$`."""
    return re.sub(r"(?<!\$)\$\{PUBLIC_HOST:\?[^}]*\}", "rookery.example.org", value).replace("$$", "$")
