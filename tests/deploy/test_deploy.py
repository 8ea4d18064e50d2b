"""The files of deploy/ match the product: settings, commands, routes, ports and limits. `make check-deploy` has the linters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import cast

import httpx2
import pytest

from rookery.app import build_route_table
from rookery.cli import COMMANDS
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.http.connection import MAX_HEAD_BYTES
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.secret import parse_new_secret_key
from rookery.wiring import build_platform
from tests.deadlines import HANG_S
from tests.deploy.files import (
    DEPLOY,
    ROOT,
    Deployment,
    Node,
    compose_services,
    find_objects,
    get,
    image_variables,
    items,
    kubernetes_objects,
    list_deployments,
    pod_containers,
    read_unit,
    read_yaml,
)
from tests.processes import run_server

DEPLOYMENTS = list(list_deployments())
NGINX, CADDY, HAPROXY, APACHE = (
    (DEPLOY / name).read_text(encoding="utf-8") for name in ("nginx.conf", "Caddyfile", "haproxy.cfg", "apache.conf")
)
TRAEFIK = "".join((DEPLOY / name).read_text(encoding="utf-8") for name in ("traefik.yaml", "traefik-routes.yaml"))


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets that the script of the compose file creates."""
    folder = tmp_path_factory.mktemp("secrets") / "secrets"
    subprocess.run([DEPLOY / "make-secrets.sh", folder], check=True, timeout=HANG_S)
    return folder


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """Every route of the server."""
    return build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("unused")))).endpoints


def _load(deployment: Deployment, secrets: Path, data_dir: Path) -> Settings:
    """Return the settings of a process whose secrets are mounted, and which fails on an unknown variable."""
    folder = data_dir / "mounted"
    folder.mkdir()
    for name in ("secret_key", "database_password", "vectors_key", "counters_password", "search_password"):
        source = secrets / name
        (folder / name).write_text(source.read_text(encoding="utf-8") if source.exists() else "0123456789abcdef", encoding="utf-8")
    variables = {
        name: re.sub(r"^(/run/secrets(/rookery)?|%d)/", f"{folder}/", value) if name.endswith("_FILE") else value
        for name, value in deployment.variables.items()
    }
    loaded = load_settings({**variables, "ROOKERY_STRICT": "true"}, overrides={"data_dir": str(data_dir)})
    assert loaded.warnings == ()
    return loaded.settings


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment.where)
def test_every_variable_is_a_setting_with_a_valid_value(deployment: Deployment, secrets: Path, tmp_path: Path) -> None:
    """The settings of each process are accepted, and the platform can be built from them, addresses of engines included."""
    settings = _load(deployment, secrets, tmp_path)

    settings.require_secret_key()
    assert build_platform(settings).runtime.settings == settings
    assert "${" not in settings.database_url.reveal()


def test_there_is_something_to_check() -> None:
    """The reading of the files above finds the processes."""
    assert {deployment.where for deployment in DEPLOYMENTS} >= {
        "compose.yaml rookery", "compose.distributed.yaml server", "compose.distributed.yaml worker",
        "rookery migrate", "rookery server", "rookery-worker worker", "rookery.service", "rookery-worker.service",
    }  # fmt: skip


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment.where)
def test_every_process_is_a_command(deployment: Deployment) -> None:
    """`serve`, `worker` and `migrate` exist."""
    assert deployment.words[0] in {command.name for command in COMMANDS}


def test_each_compose_secret_is_created_once_and_is_valid(secrets: Path) -> None:
    """Secrets by file. A second run keeps them, because the key decrypts what is stored."""
    (document,) = read_yaml(DEPLOY / "compose.distributed.yaml")
    declared = cast("Mapping[str, Mapping[str, str]]", document["secrets"])
    before = {path.name: path.read_text(encoding="utf-8") for path in secrets.iterdir()}
    subprocess.run([DEPLOY / "make-secrets.sh", secrets], check=True, timeout=HANG_S)

    assert {Path(secret["file"]).name for secret in declared.values()} == set(before)
    assert {path.name: path.read_text(encoding="utf-8") for path in secrets.iterdir()} == before
    assert parse_new_secret_key(before["secret_key"]).reveal() == before["secret_key"]
    assert all(re.fullmatch(r"[0-9a-f]{64}", value) for name, value in before.items() if name != "secret_key")
    for service in compose_services("compose.distributed.yaml").values():
        assert set(cast("list[str]", service.get("secrets") or [])) <= set(declared)


def test_each_secret_file_of_kubernetes_is_in_the_command_of_the_guide() -> None:
    """A reader who runs the guide's `kubectl create secret` has every file that the ConfigMap names."""
    (config,) = find_objects("ConfigMap").values()
    named = {Path(value).name for value in cast("Mapping[str, str]", config["data"]).values() if value.startswith("/run/secrets/rookery/")}
    guide = (ROOT / "docs" / "how-to" / "deploy-on-kubernetes.md").read_text(encoding="utf-8")

    assert set(re.findall(r"--from-(?:file|literal)=(\w+)=", guide)) == named


def test_no_secret_is_in_a_file_of_the_repository() -> None:
    """Passwords are references, and there is no Secret object to apply by mistake."""
    assert not find_objects("Secret")
    for path in (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("kubernetes/*.yaml")):
        for address in re.findall(r"\w+://[^\s\"']*@", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[a-z+]+://\w*:\$?\$\{[A-Z_]+\}@", address), f"{path.name}: {address}"


def test_every_port_is_that_of_the_image() -> None:
    """Image, proxies, services and policies agree."""
    port = image_variables()["ROOKERY_PORT"]
    (service,) = find_objects("Service").values()
    (policy,) = find_objects("NetworkPolicy").values()
    (ingress,) = find_objects("Ingress").values()
    (container,) = pod_containers(find_objects("Deployment")["rookery"])

    assert int(port) == next(setting.default for setting in fields(Settings) if setting.name == "port")
    assert re.findall(r"^EXPOSE (.*)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE) == [port]
    assert compose_services("compose.yaml")["rookery"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert get(compose_services("compose.distributed.yaml")["proxy"], "environment", "UPSTREAM") == f"server:{port}"
    assert f"server 127.0.0.1:{port};" in NGINX
    assert all(f"127.0.0.1:{port}" in text for text in (HAPROXY, APACHE, TRAEFIK))
    assert get(container, "ports") == [{"name": "http", "containerPort": int(port)}]
    assert get(service, "spec", "ports") == [{"name": "http", "port": int(port), "targetPort": "http"}]
    assert get(policy, "spec", "ingress", 0, "ports") == [{"port": int(port), "protocol": "TCP"}]
    backend = get(ingress, "spec", "rules", 0, "http", "paths", 0, "backend", "service")
    assert backend == {"name": get(service, "metadata", "name"), "port": {"name": "http"}}


def test_the_network_policy_allows_each_engine() -> None:
    """The ports of the engines' addresses are those that may be reached."""
    (config,) = find_objects("ConfigMap").values()
    (policy,) = find_objects("NetworkPolicy").values()
    addresses = [value for value in cast("Mapping[str, str]", config["data"]).values() if ".engines.svc:" in value]
    allowed = [rule for rule in items(policy, "spec", "egress") if get(rule, "to", 0, "namespaceSelector", "matchLabels") == _NAMESPACE]

    assert {int(address.rpartition("svc:")[2].partition("/")[0]) for address in addresses} == {
        port["port"] for rule in allowed for port in items(rule, "ports")
    }


_NAMESPACE = {"kubernetes.io/metadata.name": "engines"}


def test_every_probe_and_health_check_asks_for_a_real_route(endpoints: list[RouteEndpoint]) -> None:
    """Probes are /healthz and /readyz as they are; the proxies hide a page that exists."""
    paths = {endpoint.path for endpoint in endpoints if endpoint.route.method == "GET"}
    probed = {path for thing in find_objects("Deployment").values() for path in _probe_paths(thing)}
    checked = re.findall(r"c\.request\('GET', '([^']*)'\)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    hidden = [
        *re.findall(r"location = (\S+)", NGINX),
        *re.findall(r"@internal path (\S+)", CADDY),
        *re.findall(r"\{ path (\S+) \}", HAPROXY),
    ]
    hidden += [*re.findall(r'RedirectMatch 404 "\^(\S+)\$"', APACHE), *re.findall(r"Path\(`(\S+)`\)", TRAEFIK)]

    assert probed == {"/healthz", "/readyz"}
    assert checked == ["/readyz"]
    assert hidden == ["/metrics"] * 5
    assert {*probed, *checked, *hidden} <= paths


def _probe_paths(thing: Node) -> list[str]:
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    found = [get(container, probe, "httpGet", "path") for container in pod_containers(thing) for probe in probes]
    return [str(path) for path in found if path is not None]


def _health_check() -> list[str]:
    (words,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    return cast("list[str]", json.loads(words))


def test_the_health_check_passes_beside_a_server_and_fails_without_one(tmp_path: Path) -> None:
    """HEALTHCHECK of the image; Kubernetes' probes send the Host header that the server accepts."""
    (container,) = pod_containers(find_objects("Deployment")["rookery"])
    (header,) = items(container, "readinessProbe", "httpGet", "httpHeaders")
    with run_server(tmp_path / "data") as server:
        port = httpx2.URL(server.url).port
        answers = [
            httpx2.get(f"{server.url}/readyz", headers={"Host": host}, timeout=HANG_S).status_code
            for host in (str(header["value"]), "10.1.2.3:8400")
        ]
        beside = _run_health_check(port)
        server.stop()
        without = _run_health_check(port)

    assert header["name"] == "Host"
    assert answers[0] == 200
    assert answers[1] >= 400, "without the header of the manifest the probe would be refused"
    assert (beside, without) == (0, 1)


def _run_health_check(port: int | None) -> int:
    program, *arguments = _health_check()
    assert program == "python"
    command = [sys.executable, *arguments]
    return subprocess.run(command, env={"ROOKERY_PORT": str(port)}, capture_output=True, check=False, timeout=HANG_S).returncode


def test_proxies_leave_the_limits_to_the_server(endpoints: list[RouteEndpoint]) -> None:
    """The limits of each proxy and of the ingress are above those of Rookery, which answers in JSON."""
    (ingress,) = find_objects("Ingress").values()
    annotations = cast("Mapping[str, str]", get(ingress, "metadata", "annotations"))
    prefix = "nginx.ingress.kubernetes.io/"
    bodies = [
        *re.findall(r"client_max_body_size (\d+)m;", NGINX),
        annotations[f"{prefix}proxy-body-size"].removesuffix("m"),
        *re.findall(r"max_size (\d+)MiB", CADDY),
    ]
    heads = [
        int(number) * unit
        for number, unit in (
            *((number, 1024) for number in re.findall(r"large_client_header_buffers \d+ (\d+)k;", NGINX)),
            *((number, 1) for number in re.findall(r"tune.bufsize (\d+)", HAPROXY)),
            *((number, 1) for number in re.findall(r"LimitRequest(?:Line|FieldSize) (\d+)", APACHE)),
        )
    ]
    largest = max(endpoint.route.max_body_bytes for endpoint in endpoints)

    assert [int(size) * 1024 * 1024 > largest for size in bodies] == [True] * 3
    assert [size > MAX_HEAD_BYTES for size in heads] == [True] * 4
    assert "LimitRequestBody 0" in APACHE


def test_proxies_wait_for_the_longest_answer_and_close_idle_connections_first() -> None:
    """A tool call takes 600 s; Rookery closes connections that are idle for 75 s."""
    (ingress,) = find_objects("Ingress").values()
    annotations = cast("Mapping[str, str]", get(ingress, "metadata", "annotations"))
    limits = [
        *re.findall(r"proxy_read_timeout (\d+)s;", NGINX),
        *re.findall(r"response_header_timeout (\d+)s", CADDY),
        *re.findall(r"timeout (?:client|server) (\d+)s", HAPROXY),
        *re.findall(r" timeout=(\d+)", APACHE),
        *re.findall(r"responseHeaderTimeout: (\d+)s", TRAEFIK),
        annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"],
    ]
    idle_times = [
        *re.findall(r"    keepalive_timeout (\d+)s;", NGINX),
        *re.findall(r"keepalive (\d+)s", CADDY),
        *re.findall(r"pool-purge-delay (\d+)s", HAPROXY),
        *re.findall(r" ttl=(\d+)", APACHE),
        *re.findall(r"idleConnTimeout: (\d+)s", TRAEFIK),
    ]

    assert limits == ["620"] * 7
    assert [int(time) < 75 for time in idle_times] == [True] * 5
    assert "proxy_buffering off;" in NGINX
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"


def test_proxies_replace_what_a_client_says_of_its_address() -> None:
    """X-Forwarded-For as ROOKERY_TRUSTED_PROXIES expects it: set by the first proxy, not appended to a header of the client."""
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX
    assert re.findall(r"^\s*trusted_proxies", CADDY, re.MULTILINE) == []
    assert "http-request set-header X-Forwarded-For %[src]" in HAPROXY
    assert "RequestHeader unset X-Forwarded-For" in APACHE
    assert "trustedIPs: []" in TRAEFIK


def test_every_image_has_a_version() -> None:
    """Pinned versions, so that the same files run the same programs tomorrow."""
    images = [str(service["image"]) for name in ("compose.yaml", "compose.distributed.yaml") for service in compose_services(name).values()]
    images += [str(container["image"]) for thing in find_objects("Deployment").values() for container in pod_containers(thing)]

    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*", image), image


def test_every_service_of_compose_has_a_health_check_and_waits_for_healthy_ones() -> None:
    """Health checks; `depends_on` with `condition: service_healthy`."""
    services = compose_services("compose.distributed.yaml")
    for name, service in services.items():
        for other in cast("Mapping[str, Node]", service.get("depends_on") or {}).values():
            assert other == {"condition": "service_healthy"}, name
        assert service.get("healthcheck") or str(service["image"]).startswith("rookery:"), name

    assert set(cast("Node", services["server"]["depends_on"])) == {"postgres", "qdrant", "opensearch", "valkey"}
    assert [name for name, service in services.items() if service.get("ports")] == ["proxy"]


def test_every_container_of_kubernetes_is_confined() -> None:
    """securityContext: not root, a root that cannot be written, no capability; the namespace demands it of every pod."""
    (namespace,) = find_objects("Namespace").values()
    for thing in find_objects("Deployment").values():
        pod = get(thing, "spec", "template", "spec")
        assert get(pod, "securityContext", "runAsNonRoot") is True
        assert get(pod, "automountServiceAccountToken") is False
        assert get(pod, "enableServiceLinks") is False
        for container in (*items(pod, "initContainers"), *items(pod, "containers")):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert get(container, "resources", "limits", "memory")
    assert get(namespace, "metadata", "labels", "pod-security.kubernetes.io/enforce") == "restricted"


def test_selectors_select_the_pods_of_a_deployment() -> None:
    """Budgets, autoscalers, service and policy apply to pods that exist."""
    deployments = find_objects("Deployment")
    labels = [cast("Mapping[str, str]", get(thing, "spec", "template", "metadata", "labels")) for thing in deployments.values()]
    selectors = [get(thing, "spec", "selector") for thing in find_objects("Service").values()]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selectors += [get(thing, "spec", "selector", "matchLabels") for thing in find_objects(kind).values()]
    selectors += [get(thing, "spec", "podSelector", "matchLabels") for thing in find_objects("NetworkPolicy").values()]

    for selector in selectors:
        assert any(cast("Mapping[str, str]", selector).items() <= pod.items() for pod in labels), selector
    assert len(find_objects("PodDisruptionBudget")) == len(find_objects("HorizontalPodAutoscaler")) == len(deployments)
    assert {get(thing, "spec", "scaleTargetRef", "name") for thing in find_objects("HorizontalPodAutoscaler").values()} == set(deployments)
    assert {get(thing, "metadata", "namespace") for thing in kubernetes_objects() if thing["kind"] != "Namespace"} == {"rookery"}


def test_a_server_has_time_to_drain() -> None:
    """Proxies stop sending first, then requests in progress end, before anything is killed."""
    thing = find_objects("Deployment")["rookery"]
    (container,) = pod_containers(thing)
    pause = cast("int", get(container, "lifecycle", "preStop", "sleep", "seconds"))
    least_s = 20  # requests in progress get 5 s, then tool servers, jobs and spans are closed

    assert pause >= 10
    assert cast("int", get(thing, "spec", "template", "spec", "terminationGracePeriodSeconds")) >= pause + least_s
    for path in DEPLOY.glob("*.service"):
        assert int(read_unit(path)["TimeoutStopSec"][0]) >= least_s
    for name in ("compose.yaml", "compose.distributed.yaml"):
        for service in compose_services(name).values():
            if str(service["image"]).startswith("rookery:"):
                assert int(str(service["stop_grace_period"]).removesuffix("s")) >= least_s
