"""The figures that Prometheus reads: what they count, by which labels, and what asking for them costs others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import yaml
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rookery.kernel import metrics as metrics_module
from rookery.kernel.config import Settings
from rookery.kernel.errors import WrongSettings
from rookery.kernel.http.metrics_page import MetricsServer
from rookery.kernel.metrics import MAX_LABEL_SETS, MetricDescription, Metrics, MetricSample, MetricSource
from rookery.wiring import build_platform
from tests.conftest import Caller, Instance, eventually, run_instance

ROOT = Path(__file__).resolve().parents[2]
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"

Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def families(text: str) -> list[Metric]:
    """Read Prometheus' format with its own parser."""
    return list(text_string_to_metric_families(text))


def figures(text: str) -> Figures:
    """Return each sample by its name and labels."""
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families(text) for sample in family.samples}


def value(found: Figures, name: str, /, **labels: str) -> float | None:
    """Return one figure; None: there is no such."""
    return found.get((name, frozenset(labels.items())))


def labels(found: Figures, label: str) -> set[str]:
    """Return every value of a label."""
    return {text for _, pairs in found for name, text in pairs if name == label}


async def scraped(caller: Caller) -> Figures:
    """Ask for the figures."""
    answer = await caller.get("/metrics")
    assert answer.status_code == 200, answer.text
    return figures(answer.text)


async def test_metrics_need_their_scope_and_no_wildcard_has_it(instance: Instance) -> None:
    """D-05, D-23: platform:metrics lies outside of `*`; the first run's key has it by name."""
    answers = [
        await each.get("/metrics")
        for each in (instance.caller(None), await instance.api_key("*"), await instance.api_key("platform:metrics"), instance.admin)
    ]

    assert [answer.status_code for answer in answers] == [401, 403, 200, 200]
    assert answers[1].json()["required_scope"] == "platform:metrics"
    assert answers[2].headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_openmetrics_is_spoken_when_it_is_asked_for(instance: Instance) -> None:
    """D-05: what Prometheus asks for first; its strict parser finds the same families."""
    text = await instance.admin.get("/metrics")
    answer = await instance.admin.get("/metrics", Accept=OPENMETRICS)

    parse = cast("Callable[[str], Iterable[Metric]]", openmetrics.text_string_to_metric_families)  # pyright: ignore[reportUnknownMemberType] - it has no types
    found = list(parse(answer.text))
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    assert {family.name for family in found} == {family.name for family in families(text.text)}


async def test_requests_are_counted_by_pattern_and_never_by_path(instance: Instance) -> None:
    """D-05: bounded labels: route, method, status; what no route takes is one."""
    memory_id = (await instance.admin.remember())["id"]
    for path in (f"/v1/brain/memories/{memory_id}", "/v1/brain/memories/x", "/v1/brain/tags", "/v1/brain/tags?nope=1", "/private/path"):
        await instance.admin.get(path)
    await instance.admin.send("PURGE", "/private/path")
    await instance.admin.send("PURGE", "/v1/brain/tags")

    found = await scraped(instance.admin)

    requests, durations = "rookery_http_requests_total", "rookery_http_request_duration_seconds_count"
    pattern = "/v1/brain/memories/{memory_id}"
    assert value(found, requests, method="GET", route=pattern, status="200") == 1
    assert value(found, requests, method="GET", route=pattern, status="404") == 1
    assert value(found, requests, method="GET", route="/v1/brain/tags", status="422") == 1
    assert value(found, requests, method="GET", route="unmatched", status="404") == 1
    assert value(found, requests, method="OTHER", route="unmatched", status="404") == 1
    assert value(found, requests, method="OTHER", route="unmatched", status="405") == 1
    assert value(found, durations, method="GET", route=pattern) == 2
    assert value(found, "rookery_http_request_duration_seconds_bucket", method="GET", route=pattern, le="+Inf") == 2
    assert value(found, "rookery_http_requests_in_flight") == 1
    assert not any("private" in each for each in labels(found, "route"))


async def test_refusals_are_counted_by_their_code(instance: Instance) -> None:
    """D-05, spec 7: refusals are counted by reason, for every caller."""
    limited = await instance.agent_key(rate_limit=1)
    await limited.get("/v1/brain/tags")
    elsewhere = await instance.agent_key(ip_restriction=True)
    for caller in (limited, elsewhere, await instance.api_key("docs:read"), instance.caller(None), instance.caller("nonsense")):
        await caller.get("/v1/brain/tags")
    await instance.admin.get("/v1/brain/tags", Host="evil.test")

    found = await scraped(instance.admin)

    codes = {"rate_limited": 1, "ip_not_allowed": 1, "scope_missing": 1, "unauthorised": 2, "host_not_allowed": 1}
    assert {code: value(found, "rookery_http_errors_total", code=code) for code in codes} == codes


async def test_what_the_platform_does_is_counted(instance: Instance) -> None:
    """D-05, D-57: recalls by mode, memories, jobs, tool calls by outcome, bcrypt, writes, engines."""
    stored = await instance.admin.remember()
    for mode in ("semantic", "hybrid", "hybrid"):
        await instance.admin.post("/v1/brain/recall", {"query": "when", "mode": mode})
    await instance.admin.post(f"/v1/brain/memories/{stored['id']}/archive")
    call = {"server": "brain", "tool": "search", "arguments": {"query": "deploy"}}
    await instance.admin.post("/api/v1/mcp/tools/call", call)
    await instance.admin.post("/api/v1/mcp/tools/call", call | {"arguments": {}})
    await instance.admin.post("/api/v1/mcp/tools/call", call | {"tool": "made_up"})

    async def is_worked() -> bool:
        found = await scraped(instance.admin)
        return value(found, "rookery_jobs_run_total", kind="DeleteFromIndex", outcome="done") == 1

    await eventually(is_worked)
    await instance.rookery.tools.journal.flush()
    found = await scraped(instance.admin)

    assert value(found, "rookery_recall_duration_seconds_count", mode="semantic") == 1
    assert value(found, "rookery_recall_duration_seconds_count", mode="hybrid") == 2
    assert value(found, "rookery_memory_changes_total", change="stored") == 1
    assert value(found, "rookery_memory_changes_total", change="archived") == 1
    assert value(found, "rookery_jobs_run_total", kind="EmbedMemory", outcome="done") == 1
    assert value(found, "rookery_jobs_waiting", kind="EmbedMemory") == 0
    assert value(found, "rookery_jobs_oldest_age_seconds", kind="EmbedMemory") == 0
    assert value(found, "rookery_tool_calls_total", server="brain", tool="search", outcome="ok") == 1
    assert value(found, "rookery_tool_calls_total", server="brain", tool="search", outcome="invalid_arguments") == 1
    assert value(found, "rookery_tool_call_duration_seconds_count", server="brain", tool="search") == 2
    assert value(found, "rookery_tool_server_health", server="brain", health="online") == 1
    assert value(found, "rookery_bcrypt_runs_total") == 1
    assert value(found, "rookery_bcrypt_pending") == 0
    assert value(found, "rookery_usage_rows_dropped_total") == 0
    assert value(found, "rookery_tool_call_rows_lost_total") == 0
    assert value(found, "rookery_rate_limits_local") == 0
    assert (value(found, "rookery_database_write_duration_seconds_count") or 0) >= 2
    assert {value(found, "rookery_engine_up", engine=each) for each in labels(found, "engine")} == {1}
    assert labels(found, "engine") == {"database", "vectors", "texts", "embedder", "counters", "servers"}
    assert {value(found, "rookery_scrape_source_up", source=each) for each in labels(found, "source")} == {1}
    assert (value(found, "process_resident_memory_bytes") or 0) > 0
    assert not any("made_up" in each for each in labels(found, "tool"))


async def test_what_callers_call_a_tool_is_no_label(settings: Settings) -> None:
    """D-05: of a server that was never seen it is not known which tools it has; any word would be counted under itself."""
    entry = {"mcpServers": {"gone": {"command": "/nowhere/to/be/found"}}}
    (settings.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(settings) as instance:
        answer = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "gone", "tool": "made_up"})
        await instance.rookery.tools.journal.flush()
        found = await scraped(instance.admin)

    assert answer.json()["code"] == "server_unavailable"
    assert value(found, "rookery_tool_calls_total", server="gone", tool="other", outcome="server_unavailable") == 1
    assert value(found, "rookery_tool_server_health", server="gone", health="offline") == 1
    assert (value(found, "rookery_tool_session_falls_total", server="gone") or 0) >= 1
    assert value(found, "rookery_tool_breakers_open", server="gone") == 0
    assert "made_up" not in labels(found, "tool")


async def test_failed_jobs_and_the_age_of_the_oldest_are_told(instance: Instance) -> None:
    """D-05, D-51: how long the worker is behind, of the whole store."""
    at = instance.rookery.clock()
    await instance.rookery.worker.stop()
    jobs = replace(instance.rookery.jobs, clock=lambda: at.replace(year=at.year - 1))
    await instance.rookery.db.write(lambda tx: jobs.enqueue(tx, "EmbedMemory", workspace_id=1, payload={"memory_id": "x"}))

    found = await scraped(instance.admin)

    assert value(found, "rookery_jobs_waiting", kind="EmbedMemory") == 1
    assert value(found, "rookery_jobs_failed", kind="EmbedMemory") == 0
    assert (value(found, "rookery_jobs_oldest_age_seconds", kind="EmbedMemory") or 0) > 300 * 86400


async def test_no_figure_tells_of_a_tenant(instance: Instance) -> None:
    """D-05, spec 2.8: no workspace, key, name, content, query or argument is in any label."""
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


async def test_two_processes_on_one_store_count_for_themselves(settings: Settings) -> None:
    """D-01, D-05: each shows its own requests; what is of the store, both do."""
    async with run_instance(settings) as one, run_instance(settings) as other:
        await one.admin.get("/v1/brain/tags")
        second = other.caller(one.admin.key)
        first, found = await scraped(one.admin), await scraped(second)

    name = {"method": "GET", "route": "/v1/brain/tags", "status": "200"}
    assert (value(first, "rookery_http_requests_total", **name), value(found, "rookery_http_requests_total", **name)) == (1, None)
    assert value(first, "rookery_jobs_waiting", kind="EmbedMemory") == value(found, "rookery_jobs_waiting", kind="EmbedMemory") == 0


# Slow and failing sources.


def _source(name: str, read: Callable[[], Awaitable[Sequence[MetricSample]]]) -> MetricSource:
    return MetricSource(name=name, metrics=[MetricDescription(name=f"rookery_{name}", kind="gauge", help_text="A figure.")], read=read)


async def test_a_slow_source_takes_its_own_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-05: a scrape ends in its time; what is still being read is not asked again, and counts once it comes."""
    monkeypatch.setattr(metrics_module, "SOURCE_TIMEOUT_S", 0.05)
    asked, go_on = list[int](), asyncio.Event()

    async def slow() -> Sequence[MetricSample]:
        asked.append(1)
        await go_on.wait()
        return [("rookery_slow", (), 1)]

    async def good() -> Sequence[MetricSample]:
        return [("rookery_good", (), 2)]

    async def broken() -> Sequence[MetricSample]:
        raise LookupError

    metrics = Metrics()
    for source in (_source("slow", slow), _source("good", good), _source("broken", broken)):
        metrics.add_source(source)
    started = time.monotonic()
    found = [figures((await metrics.scrape(""))[0].decode()) for _ in range(3)]
    took_s = time.monotonic() - started
    go_on.set()
    last = figures((await metrics.scrape(""))[0].decode())

    assert took_s < 5
    assert len(asked) == 1
    for each in found:
        assert (value(each, "rookery_good"), value(each, "rookery_slow"), value(each, "rookery_broken")) == (2, None, None)
        up = {name: value(each, "rookery_scrape_source_up", source=name) for name in ("good", "slow", "broken")}
        assert up == {"good": 1, "slow": 0, "broken": 0}
    assert value(last, "rookery_slow") == 1


async def test_an_engine_that_hangs_is_shown_as_down(settings: Settings) -> None:
    """D-05: each engine is asked within a bound, all at once; the others' figures are there."""
    rookery = build_platform(settings)

    async def never() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    cast("dict[str, Callable[[], Awaitable[str]]]", rookery.probes)["vectors"] = never
    await rookery.start()
    try:
        started = time.monotonic()
        found = figures((await rookery.observability.metrics.scrape(""))[0].decode())
    finally:
        await rookery.close()

    assert time.monotonic() - started < 10
    assert (value(found, "rookery_engine_up", engine="vectors"), value(found, "rookery_engine_up", engine="texts")) == (0, 1)


async def test_labels_do_not_grow_without_end() -> None:
    """D-05: past the bound, what is new is counted together."""
    metrics = Metrics()
    counter, histogram = metrics.add_counter("rookery_a_total", "A.", "name"), metrics.add_histogram("rookery_b_seconds", "B.", "name")
    for number in range(MAX_LABEL_SETS + 50):
        counter.add(str(number))
        histogram.observe(0.1, str(number))

    found = figures((await metrics.scrape(""))[0].decode())

    assert value(found, "rookery_a_total", name="other") == 50
    assert value(found, "rookery_b_seconds_count", name="other") == 50
    assert value(found, "rookery_a_total", name="7") == 1
    assert len(labels(found, "name")) == MAX_LABEL_SETS + 1


async def test_a_histogram_is_cumulative_and_its_bounds_inclusive() -> None:
    """D-05: as Prometheus defines them."""
    metrics = Metrics()
    histogram = metrics.add_histogram("rookery_b_seconds", "B.", bounds=(0.1, 1.0))
    for seconds in (0.1, 0.5, 1.0, 3.0):
        histogram.observe(seconds)

    found = figures((await metrics.scrape(""))[0].decode())

    assert [value(found, "rookery_b_seconds_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")] == [1, 3, 4]
    assert value(found, "rookery_b_seconds_sum") == pytest.approx(4.6)


# The port of the loopback.


async def _asked(port: int, head: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.read(), 15)
    writer.close()
    return answer.decode()


async def test_a_port_of_the_loopback_shows_metrics_without_a_key(settings: Settings) -> None:
    """D-05, D-09: on 127.0.0.1 alone, one page, no other Host; closed with the server."""
    async with run_instance(replace(settings, metrics_port=0)) as instance:
        port = instance.rookery.observability.metrics_server
        assert port is not None
        host = f"Host: 127.0.0.1:{port.port}\r\n\r\n"
        good = await _asked(port.port, f"GET /metrics HTTP/1.1\r\n{host}")
        heads = [
            await _asked(port.port, f"{line} HTTP/1.1\r\n{host}")
            for line in ("GET /", "POST /metrics", "GET /v1/brain/tags", "HEAD /metrics")
        ]
        foreign = [await _asked(port.port, f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n") for name in ("evil.test", "evil.test:80", "")]
        number = port.port

    assert good.startswith("HTTP/1.1 200 ")
    assert value(figures(good.partition("\r\n\r\n")[2]), "rookery_http_requests_in_flight") == 0
    assert [head.split()[1] for head in heads] == ["404", "405", "404", "200"]
    assert heads[-1].endswith("\r\n\r\n")
    assert {each.split()[1] for each in foreign} == {"421"}
    with pytest.raises(OSError, match=r".+"):
        await asyncio.open_connection("127.0.0.1", number)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):  # what was sent and not read makes the end a reset
        return await asyncio.wait_for(reader.read(), 5)
    return b""


async def test_who_does_not_finish_a_question_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: the request head is limited in time, size and number; the next client is served."""
    monkeypatch.setattr("rookery.kernel.http.metrics_page._HEAD_TIMEOUT_S", 1.5)
    port = MetricsServer(Metrics(), 0)
    await port.start()
    try:
        slow = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(25)]
        for _, writer in slow:
            writer.write(b"GET /metrics")
        rests = [asyncio.create_task(_rest(reader)) for reader, _ in slow]
        await eventually(lambda: sum(rest.done() for rest in rests) >= 5)
        refused = sum(rest.done() for rest in rests)
        cut = await asyncio.gather(*rests)
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
        large = await _rest(reader)
        good = await _asked(port.port, f"GET /metrics HTTP/1.1\r\nHost: localhost:{port.port}\r\n\r\n")
        for _, each in [*slow, (reader, writer)]:
            each.close()
    finally:
        await port.aclose()

    assert (refused, set(cut)) == (5, {b""})
    assert large == b""
    assert good.startswith("HTTP/1.1 200 ")


async def test_a_port_that_is_taken_refuses_to_start(settings: Settings) -> None:
    """D-02: in one line that names the setting."""
    taken = MetricsServer(Metrics(), 0)
    await taken.start()
    number = taken.port
    rookery = build_platform(replace(settings, metrics_port=number))
    try:
        with pytest.raises(WrongSettings) as refused:
            await rookery.start()
    finally:
        await rookery.close()
        await taken.aclose()

    assert refused.value.message.startswith(f"ROOKERY_METRICS_PORT: cannot listen on 127.0.0.1:{number}")


# What is built on the names.


def _known(folder: Path) -> set[str]:
    """Return every name that an answer holds."""
    names = {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    }
    for each in build_platform(Settings(data_dir=folder)).observability.metrics.list_descriptions():
        names |= {f"{each.name}_{part}" for part in ("bucket", "sum", "count")} if each.kind == "histogram" else {each.name}
    return names


def test_the_dashboard_asks_for_figures_that_exist(tmp_path: Path) -> None:
    """D-05: every panel of the example for Grafana names metrics of ours, and every metric of ours is in a panel."""
    board = json.loads((ROOT / "examples" / "grafana" / "rookery.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    named = set(re.findall(r"\b(?:rookery|process|python)_[a-z_]+", " ".join(asked)))

    known = _known(tmp_path)
    unshown = {name.removesuffix("_bucket") for name in known - named if not name.endswith(("_sum", "_count"))}
    assert named - known == set()
    assert unshown <= {"process_start_time_seconds", "process_max_fds"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in board["panels"] for target in panel.get("targets", []))


def test_the_alerts_ask_for_figures_that_exist(tmp_path: Path) -> None:
    """D-05: each rule of the example for Prometheus names metrics of ours, and says what to do."""
    rules = yaml.safe_load((ROOT / "examples" / "prometheus" / "rookery-alerts.yml").read_text(encoding="utf-8"))
    found = [rule for group in rules["groups"] for rule in group["rules"]]

    known = _known(tmp_path)
    assert len({rule["alert"] for rule in found}) == len(found) >= 8
    for rule in found:
        named = set(re.findall(r"\b(?:rookery|process)_[a-z_]+", rule["expr"]))
        assert named, rule
        assert named <= known, rule
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert {"summary", "description"} <= rule["annotations"].keys()
