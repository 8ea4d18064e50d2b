"""Metrics for Prometheus: their values, labels and costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
import yaml
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rookery.kernel.config import Settings
from rookery.kernel.errors import WrongSettings
from rookery.kernel.http.metrics_page import MetricsServer
from rookery.kernel.metrics import MAX_LABEL_SETS, MetricDescription, Metrics, MetricSample, MetricSource
from rookery.wiring import build_platform
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.deadlines import HANG_S
from tests.stopwatch import Stopwatch

ROOT = Path(__file__).resolve().parents[2]
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def families(text: str) -> list[Metric]:
    """Read Prometheus' format with its own parser."""
    return list(text_string_to_metric_families(text))


def parse_samples(text: str) -> Samples:
    """Return the value of each sample by its name and labels."""
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families(text) for sample in family.samples}


def get_sample(samples: Samples, name: str, /, **label_values: str) -> float | None:
    """Return the value of one sample, or None."""
    return samples.get((name, frozenset(label_values.items())))


def label_values(samples: Samples, label: str) -> set[str]:
    """Return all values of a label."""
    return {text for _, pairs in samples for name, text in pairs if name == label}


async def scrape(caller: Caller) -> Samples:
    """Read the metrics."""
    response = await caller.get("/metrics")
    assert response.status_code == 200, response.text
    return parse_samples(response.text)


async def test_metrics_need_their_scope_and_no_wildcard_has_it(instance: Instance) -> None:
    """`*` does not include platform:metrics; the first key of a platform has it."""
    responses = [
        await caller.get("/metrics")
        for caller in (instance.caller(None), await instance.api_key("*"), await instance.api_key("platform:metrics"), instance.admin)
    ]

    assert [response.status_code for response in responses] == [401, 403, 200, 200]
    assert responses[1].json()["required_scope"] == "platform:metrics"
    assert responses[2].headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_openmetrics_is_returned_if_accepted(instance: Instance) -> None:
    """Prometheus prefers this format; it has the same families."""
    text = await instance.admin.get("/metrics")
    response = await instance.admin.get("/metrics", Accept=OPENMETRICS)

    parse = cast("Callable[[str], Iterable[Metric]]", openmetrics.text_string_to_metric_families)  # pyright: ignore[reportUnknownMemberType] - it has no types
    parsed_families = list(parse(response.text))
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert response.text.endswith("# EOF\n")
    assert {family.name for family in parsed_families} == {family.name for family in families(text.text)}


async def test_requests_are_counted_by_route_and_never_by_path(instance: Instance) -> None:
    """The labels are bounded; all unknown paths share one label."""
    memory_id = (await instance.admin.remember())["id"]
    for path in (f"/v1/brain/memories/{memory_id}", "/v1/brain/memories/x", "/v1/brain/tags", "/v1/brain/tags?nope=1", "/private/path"):
        await instance.admin.get(path)
    await instance.admin.send("PURGE", "/private/path")
    await instance.admin.send("PURGE", "/v1/brain/tags")

    samples = await scrape(instance.admin)

    requests, durations = "rookery_http_requests_total", "rookery_http_request_duration_seconds_count"
    pattern = "/v1/brain/memories/{memory_id}"
    assert get_sample(samples, requests, method="GET", route=pattern, status="200") == 1
    assert get_sample(samples, requests, method="GET", route=pattern, status="404") == 1
    assert get_sample(samples, requests, method="GET", route="/v1/brain/tags", status="422") == 1
    assert get_sample(samples, requests, method="GET", route="unmatched", status="404") == 1
    assert get_sample(samples, requests, method="OTHER", route="unmatched", status="404") == 1
    assert get_sample(samples, requests, method="OTHER", route="unmatched", status="405") == 1
    assert get_sample(samples, durations, method="GET", route=pattern) == 2
    assert get_sample(samples, "rookery_http_request_duration_seconds_bucket", method="GET", route=pattern, le="+Inf") == 2
    assert get_sample(samples, "rookery_http_requests_in_flight") == 1
    assert not any("private" in route for route in label_values(samples, "route"))


async def test_errors_are_counted_by_their_code(instance: Instance) -> None:
    """Errors of all callers are counted."""
    limited = await instance.agent_key(rate_limit=1)
    await limited.get("/v1/brain/tags")
    ip_restricted = await instance.agent_key(ip_restriction=True)
    for caller in (limited, ip_restricted, await instance.api_key("docs:read"), instance.caller(None), instance.caller("nonsense")):
        await caller.get("/v1/brain/tags")
    await instance.admin.get("/v1/brain/tags", Host="evil.test")

    samples = await scrape(instance.admin)

    codes = {"rate_limited": 1, "ip_not_allowed": 1, "scope_missing": 1, "unauthorised": 2, "host_not_allowed": 1}
    assert {code: get_sample(samples, "rookery_http_errors_total", code=code) for code in codes} == codes


async def test_a_deferred_job_is_counted_when_it_ran(instance: Instance) -> None:
    """A batch of long memories is indexed in parts. Each job counts once, and none fails."""
    memories = [{"content": f"{number} " + "heron " * 7_500} for number in range(4)]
    await instance.admin.post("/v1/brain/remember/batch", {"memories": memories})

    async def is_worked() -> bool:
        return get_sample(await scrape(instance.admin), "rookery_jobs_waiting", kind="EmbedMemory") == 0

    await eventually(is_worked)
    samples = await scrape(instance.admin)
    assert get_sample(samples, "rookery_jobs_run_total", kind="EmbedMemory", outcome="done") == 4
    assert get_sample(samples, "rookery_job_batch_duration_seconds_count", kind="EmbedMemory") == 2


async def test_operations_of_the_platform_are_counted(instance: Instance) -> None:
    """These are recalls, memories, jobs, tool calls, bcrypt runs, writes and engines."""
    stored = await instance.admin.remember()
    for mode in ("semantic", "hybrid", "hybrid"):
        await instance.admin.post("/v1/brain/recall", {"query": "when", "mode": mode})
    await instance.admin.post(f"/v1/brain/memories/{stored['id']}/archive")
    call = {"server": "brain", "tool": "search", "arguments": {"query": "deploy"}}
    await instance.admin.post("/api/v1/mcp/tools/call", call)
    await instance.admin.post("/api/v1/mcp/tools/call", call | {"arguments": {}})
    await instance.admin.post("/api/v1/mcp/tools/call", call | {"tool": "made_up"})

    async def is_worked() -> bool:
        samples = await scrape(instance.admin)
        return get_sample(samples, "rookery_jobs_run_total", kind="DeleteFromIndex", outcome="done") == 1

    await eventually(is_worked)
    await instance.rookery.tools.call_log.flush()
    samples = await scrape(instance.admin)

    assert get_sample(samples, "rookery_recall_duration_seconds_count", mode="semantic") == 1
    assert get_sample(samples, "rookery_recall_duration_seconds_count", mode="hybrid") == 2
    assert get_sample(samples, "rookery_memory_changes_total", change="stored") == 1
    assert get_sample(samples, "rookery_memory_changes_total", change="archived") == 1
    assert get_sample(samples, "rookery_jobs_run_total", kind="EmbedMemory", outcome="done") == 1
    assert get_sample(samples, "rookery_jobs_waiting", kind="EmbedMemory") == 0
    assert get_sample(samples, "rookery_jobs_oldest_age_seconds", kind="EmbedMemory") == 0
    assert get_sample(samples, "rookery_tool_calls_total", server="brain", tool="search", outcome="ok") == 1
    assert get_sample(samples, "rookery_tool_calls_total", server="brain", tool="search", outcome="invalid_arguments") == 1
    assert get_sample(samples, "rookery_tool_call_duration_seconds_count", server="brain", tool="search") == 2
    assert get_sample(samples, "rookery_tool_server_health", server="brain", health="online") == 1
    assert get_sample(samples, "rookery_bcrypt_runs_total") == 1
    assert get_sample(samples, "rookery_bcrypt_pending") == 0
    assert get_sample(samples, "rookery_usage_rows_dropped_total") == 0
    assert get_sample(samples, "rookery_tool_call_rows_lost_total") == 0
    assert get_sample(samples, "rookery_rate_limits_local") == 0
    assert (get_sample(samples, "rookery_database_write_duration_seconds_count") or 0) >= 2
    assert {get_sample(samples, "rookery_engine_up", engine=engine) for engine in label_values(samples, "engine")} == {1}
    assert label_values(samples, "engine") == {"database", "vectors", "texts", "embedder", "counters", "servers"}
    assert {get_sample(samples, "rookery_scrape_source_up", source=source) for source in label_values(samples, "source")} == {1}
    assert (get_sample(samples, "process_resident_memory_bytes") or 0) > 0
    assert not any("made_up" in tool for tool in label_values(samples, "tool"))


async def test_unknown_tool_names_are_not_labels(settings: Settings) -> None:
    """The tools of a server that never connected are unknown, so that any name could become a label."""
    entry = {"mcpServers": {"gone": {"command": "/nowhere/to/be/found"}}}
    (settings.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(settings) as instance:
        response = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "gone", "tool": "made_up"})
        await instance.rookery.tools.call_log.flush()
        samples = await scrape(instance.admin)

    assert response.json()["code"] == "server_unavailable"
    assert get_sample(samples, "rookery_tool_calls_total", server="gone", tool="other", outcome="server_unavailable") == 1
    assert get_sample(samples, "rookery_tool_server_health", server="gone", health="offline") == 1
    assert (get_sample(samples, "rookery_tool_session_falls_total", server="gone") or 0) >= 1
    assert get_sample(samples, "rookery_tool_breakers_open", server="gone") == 0
    assert "made_up" not in label_values(samples, "tool")


async def test_failed_jobs_and_the_age_of_the_oldest_job_are_metrics(instance: Instance) -> None:
    """They show the backlog of the whole store."""
    at = instance.rookery.clock()
    await instance.rookery.worker.stop()
    jobs = replace(instance.rookery.runtime.jobs, clock=lambda: at - timedelta(days=365))
    await instance.rookery.db.write(lambda tx: jobs.enqueue(tx, "EmbedMemory", workspace_id=1, payload={"memory_id": "x"}))

    samples = await scrape(instance.admin)

    assert get_sample(samples, "rookery_jobs_waiting", kind="EmbedMemory") == 1
    assert get_sample(samples, "rookery_jobs_failed", kind="EmbedMemory") == 0
    assert (get_sample(samples, "rookery_jobs_oldest_age_seconds", kind="EmbedMemory") or 0) > 300 * 86400


async def test_no_metric_contains_data_of_a_tenant(instance: Instance) -> None:
    """No label has a workspace, key, name, content, query or argument."""
    stranger = await instance.api_key(workspace_id=await instance.workspace("zanzibar-inc"), agent_id="zanzibar-agent")
    stored = await stranger.remember("The zanzibar secret.", org="zanzibar", project="zanzibar", tags=["zanzibar"], type="zanzibar")
    await stranger.post("/v1/brain/recall", {"query": "zanzibar"})
    await stranger.get("/v1/brain/search?q=zanzibar")
    await stranger.get("/zanzibar")
    await stranger.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": "search", "arguments": {"query": "zanzibar"}})
    await stranger.post("/api/v1/mcp/tools/call", {"server": "zanzibar", "tool": "zanzibar", "arguments": {}})

    text = (await instance.admin.get("/metrics")).text

    for secret in ("zanzibar", str(stored["id"]), stranger.key_id, str(stranger.key)):
        assert secret not in text


async def test_two_processes_on_one_store_have_their_own_counters(settings: Settings) -> None:
    """Each counts its own requests; both have the metrics of the store."""
    async with run_instance(settings) as one, run_instance(settings) as other:
        await one.admin.get("/v1/brain/tags")
        second = other.caller(one.admin.key)
        first_samples, second_samples = await scrape(one.admin), await scrape(second)

    name = {"method": "GET", "route": "/v1/brain/tags", "status": "200"}
    assert (
        get_sample(first_samples, "rookery_http_requests_total", **name),
        get_sample(second_samples, "rookery_http_requests_total", **name),
    ) == (1, None)
    assert (
        get_sample(first_samples, "rookery_jobs_waiting", kind="EmbedMemory")
        == get_sample(second_samples, "rookery_jobs_waiting", kind="EmbedMemory")
        == 0
    )


# Slow and failing sources


def _source(name: str, read: Callable[[], Awaitable[Sequence[MetricSample]]]) -> MetricSource:
    return MetricSource(name=name, metrics=[MetricDescription(f"rookery_{name}", "gauge", "A figure.")], read=read)


async def test_a_slow_source_lacks_only_its_own_metrics() -> None:
    """A scrape has a time limit; a running read is not started again, and its values count later."""
    reads, continued = list[int](), asyncio.Event()

    async def read_slowly() -> Sequence[MetricSample]:
        reads.append(1)
        await continued.wait()
        return [("rookery_slow", (), 1)]

    async def read_value() -> Sequence[MetricSample]:
        return [("rookery_good", (), 2)]

    async def fail() -> Sequence[MetricSample]:
        raise LookupError

    metrics = Metrics(source_timeout_s=0.05)
    for source in (_source("slow", read_slowly), _source("good", read_value), _source("broken", fail)):
        metrics.add_source(source)
    with Stopwatch() as watch:
        scrapes = [parse_samples((await metrics.scrape(""))[0].decode()) for _ in range(3)]
    continued.set()
    last_samples = parse_samples((await metrics.scrape(""))[0].decode())

    assert watch.reference_s < 5
    assert len(reads) == 1
    for samples in scrapes:
        assert (get_sample(samples, "rookery_good"), get_sample(samples, "rookery_slow"), get_sample(samples, "rookery_broken")) == (
            2,
            None,
            None,
        )
        up = {name: get_sample(samples, "rookery_scrape_source_up", source=name) for name in ("good", "slow", "broken")}
        assert up == {"good": 1, "slow": 0, "broken": 0}
    assert get_sample(last_samples, "rookery_slow") == 1


async def test_an_engine_that_hangs_counts_as_down(settings: Settings) -> None:
    """All engines are probed concurrently with a time limit."""
    rookery = build_platform(settings)

    async def hang() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    cast("dict[str, Callable[[], Awaitable[str]]]", rookery.probes)["vectors"] = hang
    await rookery.start()
    try:
        with Stopwatch() as watch:
            samples = parse_samples((await rookery.observability.metrics.scrape(""))[0].decode())
    finally:
        await rookery.close()

    assert watch.reference_s < 10
    assert (get_sample(samples, "rookery_engine_up", engine="vectors"), get_sample(samples, "rookery_engine_up", engine="texts")) == (0, 1)


async def test_the_number_of_labels_is_limited() -> None:
    """Beyond the limit, new labels are counted as `other`."""
    metrics = Metrics()
    counter, histogram = metrics.add_counter("rookery_a_total", "A.", "name"), metrics.add_histogram("rookery_b_seconds", "B.", "name")
    for number in range(MAX_LABEL_SETS + 50):
        counter.add(str(number))
        histogram.observe(0.1, str(number))

    samples = parse_samples((await metrics.scrape(""))[0].decode())

    assert get_sample(samples, "rookery_a_total", name="other") == 50
    assert get_sample(samples, "rookery_b_seconds_count", name="other") == 50
    assert get_sample(samples, "rookery_a_total", name="7") == 1
    assert len(label_values(samples, "name")) == MAX_LABEL_SETS + 1


async def test_a_histogram_is_cumulative_and_its_bounds_inclusive() -> None:
    """Prometheus defines histograms this way."""
    metrics = Metrics()
    histogram = metrics.add_histogram("rookery_b_seconds", "B.", bounds=(0.1, 1.0))
    for seconds in (0.1, 0.5, 1.0, 3.0):
        histogram.observe(seconds)

    samples = parse_samples((await metrics.scrape(""))[0].decode())

    assert [get_sample(samples, "rookery_b_seconds_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")] == [1, 3, 4]
    assert get_sample(samples, "rookery_b_seconds_sum") == pytest.approx(4.6)


# The loopback port


async def _send_request(port: int, head: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    response = await asyncio.wait_for(reader.read(), HANG_S)
    writer.close()
    return response.decode()


async def test_a_loopback_port_serves_metrics_without_a_key(settings: Settings) -> None:
    """It serves one page on 127.0.0.1 for its own Host, and is closed with the server."""
    async with run_instance(replace(settings, metrics_port=0)) as instance:
        port = instance.rookery.observability.metrics_server
        assert port is not None
        host = f"Host: 127.0.0.1:{port.port}\r\n\r\n"
        response = await _send_request(port.port, f"GET /metrics HTTP/1.1\r\n{host}")
        heads = [
            await _send_request(port.port, f"{line} HTTP/1.1\r\n{host}")
            for line in ("GET /", "POST /metrics", "GET /v1/brain/tags", "HEAD /metrics")
        ]
        foreign_host_responses = [
            await _send_request(port.port, f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n") for name in ("evil.test", "evil.test:80", "")
        ]
        port_number = port.port

    assert response.startswith("HTTP/1.1 200 ")
    assert get_sample(parse_samples(response.partition("\r\n\r\n")[2]), "rookery_http_requests_in_flight") == 0
    assert [head.split()[1] for head in heads] == ["404", "405", "404", "200"]
    assert heads[-1].endswith("\r\n\r\n")
    assert {foreign_response.split()[1] for foreign_response in foreign_host_responses} == {"421"}
    with pytest.raises(OSError, match=r".+"):
        await asyncio.open_connection("127.0.0.1", port_number)


async def _read_rest(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):  # unread bytes turn the close into a reset
        return await asyncio.wait_for(reader.read(), HANG_S)
    return b""


async def test_incomplete_requests_do_not_block_other_clients() -> None:
    """The time, size and number of request heads are limited."""
    port = MetricsServer(Metrics(), 0, head_timeout_s=1.5)
    await port.start()
    try:
        slow_connections = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(25)]
        for _, writer in slow_connections:
            writer.write(b"GET /metrics")
        tasks = [asyncio.create_task(_read_rest(reader)) for reader, _ in slow_connections]
        await eventually(lambda: sum(task.done() for task in tasks) >= 5)
        closed_early = sum(task.done() for task in tasks)
        received = await asyncio.gather(*tasks)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
        response_to_large_head = await _read_rest(reader)
        response = await _send_request(port.port, f"GET /metrics HTTP/1.1\r\nHost: localhost:{port.port}\r\n\r\n")
        for _, open_writer in [*slow_connections, (reader, writer)]:
            open_writer.close()
    finally:
        await port.aclose()

    assert (closed_early, set(received)) == (5, {b""})
    assert response_to_large_head == b""
    assert response.startswith("HTTP/1.1 200 ")


async def test_a_port_in_use_stops_the_start(settings: Settings) -> None:
    """The error is one line with the setting."""
    other_server = MetricsServer(Metrics(), 0)
    await other_server.start()
    port_number = other_server.port
    rookery = build_platform(replace(settings, metrics_port=port_number))
    try:
        with pytest.raises(WrongSettings) as error:
            await rookery.start()
    finally:
        await rookery.close()
        await other_server.aclose()

    assert error.value.message.startswith(f"ROOKERY_METRICS_PORT: cannot listen on 127.0.0.1:{port_number}")


# Dashboards and alerts


def _known_names(folder: Path) -> set[str]:
    """Return the names of all metrics."""
    names = {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    }
    for description in build_platform(Settings(data_dir=folder)).observability.metrics.list_descriptions():
        names |= (
            {f"{description.name}_{part}" for part in ("bucket", "sum", "count")} if description.kind == "histogram" else {description.name}
        )
    return names


def test_the_dashboard_uses_existing_metrics(tmp_path: Path) -> None:
    """The example for Grafana uses only existing metrics, and nearly all of them."""
    dashboard = json.loads((ROOT / "examples" / "grafana" / "rookery.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used_names = set(re.findall(r"\b(?:rookery|process|python)_[a-z_]+", " ".join(expressions)))

    known_names = _known_names(tmp_path)
    unused_names = {name.removesuffix("_bucket") for name in known_names - used_names if not name.endswith(("_sum", "_count"))}
    assert used_names - known_names == set()
    assert unused_names <= {"process_start_time_seconds", "process_max_fds"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in dashboard["panels"] for target in panel.get("targets", []))


def test_the_alerts_use_existing_metrics(tmp_path: Path) -> None:
    """Each rule of the example for Prometheus uses existing metrics and has a description."""
    rules = yaml.safe_load((ROOT / "examples" / "prometheus" / "rookery-alerts.yml").read_text(encoding="utf-8"))
    alert_rules = [rule for group in rules["groups"] for rule in group["rules"]]

    known_names = _known_names(tmp_path)
    assert len({rule["alert"] for rule in alert_rules}) == len(alert_rules) >= 8
    for rule in alert_rules:
        used_names = set(re.findall(r"\b(?:rookery|process)_[a-z_]+", rule["expr"]))
        assert used_names, rule
        assert used_names <= known_names, rule
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} <= rule["annotations"].keys()
