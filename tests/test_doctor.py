"""`rookery doctor`."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import bindparam, update

from rookery import doctor
from rookery.access.key_fields import NewAgentKey
from rookery.access.store.audit import entries
from rookery.cli.store import NO_DATA_ADVICE
from rookery.doctor import DoctorFinding, examine, has_no_problem
from rookery.kernel.clock import to_micros
from rookery.kernel.config import Settings
from rookery.kernel.ids import uuid7
from rookery.memory.indexing import EMBED_JOB, WORDS_JOB, build_document
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.memory.store.tables import MEMORIES, memories
from rookery.wiring import Rookery, build_platform
from tests.conftest import OPERATOR, FakeClock, Instance, eventually, run_instance
from tests.console.prefix_proxy import run_prefix_proxy
from tests.documentation import all_commands
from tests.processes import run_server
from tests.tools.makers import make_odd_entry

_ARCHIVE = update(memories).where(memories.c.id == bindparam("memory")).values(archived_at=memories.c.created_at)


async def _examine(rookery: Rookery, name: str) -> list[DoctorFinding]:
    return [finding for finding in await examine(rookery, deep=True) if finding.about == name]


def _grades(findings: list[DoctorFinding], name: str) -> list[str]:
    return [finding.grade for finding in findings if finding.about == name]


async def test_a_healthy_installation_is_well(instance: Instance) -> None:
    """The doctor looks at engines, memory, jobs, disk, the file of servers, and processes that share a store."""
    await instance.admin.remember()
    findings = await examine(instance.rookery)
    shared = {"processes"} if instance.rookery.db.dialect == "postgresql" else set[str]()

    assert has_no_problem(findings)
    assert "ok: all-MiniLM-L6-v2 (English, 8-bit integers, 384 dimensions)" in {finding.says for finding in findings}
    assert {finding.grade for finding in findings} == {"ok"}
    assert {
        "database",
        "vectors",
        "texts",
        "embedder",
        "counters",
        "memory",
        "jobs",
        "server",
        "disk",
        "secrets",
        "tool servers",
        "keys",
        "audit",
    } | shared == {each.about for each in findings}


async def test_the_doctor_answers_over_http(instance: Instance) -> None:
    """The console shows the findings of `rookery doctor`; each that is not ok has advice."""
    response = await instance.admin.get("/api/v1/doctor")
    findings = response.json()["findings"]

    assert response.json()["healthy"] is True
    assert {"database", "disk", "tool servers"} <= {finding["about"] for finding in findings}
    assert [finding for finding in findings if finding["grade"] != "ok" and not finding["advice"]] == []


async def test_the_doctor_names_what_is_wrong(settings: Settings) -> None:
    """Warns when every caller has one address: a broken file is told: a full disk."""
    settings.servers_file.write_text("{", encoding="utf-8")
    async with run_instance(replace(settings, min_free_disk_mb=1_000_000)) as instance:
        other = await instance.agent_key()
        for _ in range(60):
            await instance.admin.get("/v1/brain/tags")
            await other.get("/v1/brain/tags")
        await instance.rookery.access.usage.close()
        findings = await examine(instance.rookery)

    assert not has_no_problem(findings)
    assert (_grades(findings, "disk"), _grades(findings, "tool servers"), _grades(findings, "addresses")) == (
        ["problem"],
        ["problem"],
        ["warning"],
    )


async def test_a_tool_server_that_cannot_start_is_told(settings: Settings) -> None:
    """A server whose program is missing is not reported "ok", even before its first start."""
    servers = {"gone": {"command": "no-such-program-anywhere"}, "off": {"command": "nor-this-one", "enabled": False}}
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    async with run_instance(settings) as instance:
        told = [each for each in await examine(instance.rookery) if each.about == "tool servers"]

    assert [each.grade for each in told] == ["warning"]
    assert "'gone' cannot start: The program 'no-such-program-anywhere' was not found" in told[0].says


async def test_tool_servers_that_do_not_work_in_the_running_server_are_reported_with_the_reason(settings: Settings) -> None:
    """One ends at once, one cannot list its prompts, one offers nothing. If none runs, nothing is known."""
    ends = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    entries = {"ends": ends, "partial": make_odd_entry("--no-prompts"), "empty": make_odd_entry("--empty"), "whole": make_odd_entry()}
    settings.servers_file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")

    async def list_findings() -> list[DoctorFinding]:
        rookery = build_platform(settings)
        async with rookery.open_for_command():
            return [finding for finding in await examine(rookery) if finding.about == "tool servers"]

    async def list_warnings() -> list[DoctorFinding]:
        """Return the three findings once both reasons are in the health file, which follows the published health within a second."""
        findings = await list_findings()
        has_reasons = len(findings) == 3 and "code 3" in findings[0].says and ": " in findings[1].says
        return findings if has_reasons and {finding.grade for finding in findings} == {"warning"} else []

    with run_server(settings.data_dir):
        running = await eventually(list_warnings)
    stopped = await list_findings()

    ends_text, partial_text, empty_text = (finding.says for finding in running)
    assert ends_text.startswith("'ends' is offline in the running server: The server exited with code 3")
    assert partial_text.startswith("'partial' is degraded in the running server: ")
    assert "the store of prompts is down" in partial_text
    assert empty_text == "'empty' is online in the running server, but lists no tools, resources or prompts"
    assert [str(finding.advice).rpartition("run: ")[2] for finding in running] == [
        f"rookery servers check {name}" for name in ("ends", "partial", "empty")
    ]
    assert [finding.grade for finding in stopped] == ["ok"]


async def test_keys_that_expire_soon_or_may_do_everything_and_lie_idle_are_told(settings: Settings) -> None:
    """Seven days and ninety; what is suspended, expired already, narrow or in use is not worth a word."""
    clock = FakeClock()
    rookery = build_platform(settings, clock=clock)
    async with rookery.open_for_command():
        workspace_id = (await rookery.create_first_keys()).workspace_id or 0
        keys = rookery.access.agent_keys

        async def make(name: str, permission: str, days: int | None = None) -> str:
            expires_at = None if days is None else clock() + timedelta(days=days)
            new = NewAgentKey(name=name, permissions=(permission,), expires_at=expires_at)
            return (await keys.create(workspace_id, new, by=OPERATOR)).key.id

        await make("soon", "brain:read", 97)
        await keys.suspend(workspace_id, await make("suspended", "brain:read", 97), by=OPERATOR)
        await make("later", "brain:read", 99)
        await make("idle", "*")
        await make("expired", "*", 1)
        await make("narrow", "brain:*")
        used = await make("used", "*")
        assert _grades(await examine(rookery), "keys") == ["warning"]  # that expires tomorrow
        clock.advance(days=91)
        rookery.access.usage.count_request(used, to_micros(clock()), "192.0.2.1")
        await rookery.access.usage.flush()
        told = [(each.grade, re.findall(r"'([a-z ]+)' \(", each.says)) for each in await examine(rookery) if each.about == "keys"]

    assert told == [("warning", ["first key"]), ("warning", ["soon"]), ("warning", ["idle"])]


async def test_a_chain_that_does_not_end_as_it_was_written_is_told(settings: Settings) -> None:
    """By its last entry alone; the whole is read by `audit verify`."""
    async with run_instance(settings) as instance:
        [_, end] = await instance.rookery.access.audit.list_chain_ends()
        forge = update(entries).where(entries.c.workspace_id == end.workspace_id, entries.c.seq == end.seq).values(actor_name="nobody")
        await instance.rookery.db.write(lambda tx: tx.execute(forge))
        findings = await examine(instance.rookery)

    [broken] = [each for each in findings if each.about == "audit"]
    assert broken.grade == "problem"
    assert "workspace 1" in broken.says
    assert "audit verify" in str(broken.advice)


async def test_memories_of_another_model_are_told(settings: Settings) -> None:
    """A changed model makes memories stale; the doctor offers the re-index."""
    async with run_instance(settings) as instance:
        await instance.admin.remember()
    other = build_platform(replace(settings, embedder=type(settings.embedder)("embedded:f32")))
    async with other.open_for_command():
        findings = await examine(other)

    [stale] = [finding for finding in findings if finding.about == "memory"]
    assert stale.grade == "warning"
    assert "brain:reindex --stale" in str(stale.advice)


@pytest.mark.parametrize(
    ("index", "delete", "advice"),
    [
        ("vectors", "DELETE FROM entry WHERE change IN (SELECT change FROM entry ORDER BY change LIMIT 3)", "rookery brain:reindex"),
        ("texts", "DELETE FROM document WHERE id IN (SELECT id FROM document ORDER BY id LIMIT 3)", "rookery brain:reindex --elastic-only"),
    ],
)
async def test_memories_that_an_index_lost_are_counted_and_a_reindex_brings_them_back(
    settings: Settings, index: str, delete: str, advice: str
) -> None:
    """`doctor --deep` compares both indexes with the records; memories that an index holds beyond are no finding."""
    async with run_instance(settings) as instance:
        for number in range(5):
            await instance.admin.remember(f"The heron of roof {number} nests on a Tuesday.")
        extra = await instance.admin.remember("The heron that is archived, and not taken out yet.")
        await instance.rookery.db.write(lambda tx: tx.execute(_ARCHIVE, {"memory": str(extra["id"])}))
        before = await _examine(instance.rookery, "indexes")

    with closing(sqlite3.connect(Path(settings.data_dir, f"{index}.db"))) as raw, raw:
        raw.execute(delete)
    async with run_instance(settings) as again:
        found = await again.caller(instance.admin.key).get("/v1/brain/search?q=heron")
        told = await _examine(again.rookery, "indexes")
        shallow = await examine(again.rookery)
        await again.rookery.memory.reindexer.reindex(ReindexRequest(words_only=index == "texts"))
        after = await _examine(again.rookery, "indexes")

    assert found.status_code == 200
    assert [(each.grade, each.advice) for each in told] == [("problem", f"{advice} (the server may keep running)")]
    assert "workspace 1: the" in told[0].says
    assert "lacks at least 2 of 5 memories" in told[0].says
    assert _grades(shallow, "indexes") == []
    assert [(each.grade, each.says) for each in (*before, *after)] == [
        ("ok", "both contain the 5 memories that the records mark as indexed")
    ] * 2


async def test_texts_without_a_memory_are_reported_with_what_to_do(settings: Settings) -> None:
    """`doctor --deep` counts the texts that a killed process left, and the command in its advice erases them."""
    async with run_instance(settings) as instance:
        stored = await instance.admin.remember("The heron of a stored memory.")
        memory = await instance.rookery.db.lookup(lambda tx: MEMORIES.find(tx, 1, id=str(stored["id"])))
        assert memory is not None
        orphans = [replace(build_document(memory), memory_id=uuid7(), content="the secret heron") for _ in range(2)]
        await instance.rookery.engines.texts.put(orphans, is_early=True)
        found = await _examine(instance.rookery, "indexes")
        await instance.rookery.memory.maintenance.forgetting.run(ForgetRequest(workspace_id=1, erase_traces=True))
        after = await _examine(instance.rookery, "indexes")

    text = "the full-text index contains 2 texts without a memory, which a killed process left"
    advice = "Erase them: rookery brain:forget --traces (the server may keep running)"
    assert [(finding.grade, finding.says, finding.advice) for finding in found] == [("problem", text, advice)]
    assert [finding.grade for finding in after] == ["ok"]


async def test_memories_that_wait_long_for_an_index_are_counted(settings: Settings) -> None:
    """Also without `--deep`, and also if only the words of a memory are missing."""
    clock = FakeClock()
    rookery = build_platform(settings, clock=clock)

    async def list_backlogs() -> list[str]:
        return [finding.says for finding in await examine(rookery) if finding.about == "backlog"]

    async with rookery.open_for_command():
        new_jobs = [(1, {"memory_id": str(number)}) for number in range(2)]
        await rookery.db.write(lambda tx: rookery.runtime.jobs.enqueue_many(tx, WORDS_JOB, new_jobs))
        clock.advance(seconds=50)
        await rookery.db.write(lambda tx: rookery.runtime.jobs.enqueue(tx, EMBED_JOB, workspace_id=1, payload={"memory_id": "2"}))
        early = await list_backlogs()
        clock.advance(seconds=100)
        late = await list_backlogs()

    assert early == []
    assert late == [
        "1 memory waits to be indexed, the oldest for 1 minute",
        "2 memories wait to be written to the full-text index, the oldest for 2 minutes",
    ]


async def test_an_index_that_is_damaged_is_told_with_what_to_do(settings: Settings) -> None:
    """A message says what was wrong, with which value, and what to do."""
    Path(settings.data_dir, "vectors.db").write_bytes(b"not a database, " * 4096)
    rookery = build_platform(settings)
    async with rookery.open_for_command():
        findings = await examine(rookery)

    [broken] = [finding for finding in findings if finding.about == "vectors"]
    assert broken.grade == "problem"
    assert "brain:reindex" in broken.says
    assert json.dumps(broken.says)


def test_every_finding_that_is_not_ok_says_what_to_run_or_to_set() -> None:
    """A fix for each finding. Every construction in the source is read, so that none is left out because no test causes it."""
    texts = _read_advice(Path(doctor.__file__)) | {f"diagnosis: {NO_DATA_ADVICE}": [NO_DATA_ADVICE]}
    settings = {f"ROOKERY_{setting.name.upper()}" for setting in dataclasses.fields(Settings)}
    words = {" ".join(word for word in name.replace("brain ", "brain:").split() if not word.isupper()) for name, _ in all_commands()}

    assert len(texts) > 25
    for place, advice in texts.items():
        assert advice, f"{place}: no advice"
        for text in advice:
            named = re.findall(r"rookery ([a-z][a-z:-]*(?: [a-z][a-z-]*)?)", text)
            assert (
                named or set(re.findall(r"ROOKERY_[A-Z_]+", text)) & settings or re.search(r"\b(chmod|rm|ulimit|PATCH|rookery …) ", text)
            ), f"{place}: {text}"
            assert {name for name in named if not words & {f"rookery {name}", f"rookery {name.split()[0]}"}} == set(), f"{place}: {text}"
            assert set(re.findall(r"ROOKERY_[A-Z_]+", text)) <= settings, f"{place}: {text}"


def test_a_finding_that_needs_a_fix_cannot_be_made_without_one() -> None:
    """A check that is added later has advice as well."""
    with pytest.raises(ValueError, match="no advice"):
        DoctorFinding("disk", "warning", "something is wrong")


def _read_advice(path: Path) -> dict[str, list[str]]:
    """Return the texts that the advice of each finding may have, by line, of all constructions whose grade is not always `ok`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = dict[str, list[str]]()
    for function in [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call) and ast.unparse(node.func) == "DoctorFinding"]:
            if ast.unparse(call.args[1]) != "'ok'":
                advice = [keyword.value for keyword in call.keywords if keyword.arg == "advice"]
                found[f"{path.name}:{call.lineno}"] = [text for value in advice for text in _resolve(value, function, tree, set())]
    return found


def _resolve(  # noqa: C901 - a case for each kind of expression
    value: ast.expr, function: ast.AST, tree: ast.Module, seen: set[str]
) -> list[str]:
    """Return the texts that an expression may have. A value that is inserted is its own text if it is a constant, else `…`."""
    match value:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr():
            parts = [part if isinstance(part, ast.Constant) else cast("ast.FormattedValue", part).value for part in value.values]
            choices = [(_resolve(part, function, tree, seen) or ["…"])[:1] for part in parts]
            return ["".join(str(choice[0]) for choice in choices)]
        case ast.BinOp():
            return ["".join((_resolve(side, function, tree, seen) or [""])[0] for side in (value.left, value.right))]
        case ast.IfExp():
            return [text for branch in (value.body, value.orelse) for text in _resolve(branch, function, tree, seen)]
        case ast.Dict():
            return [text for item in value.values for text in _resolve(item, function, tree, seen)]
        case ast.Tuple() if value.elts:
            return _resolve(value.elts[-1], function, tree, seen)
        case ast.Subscript():
            return _resolve(value.value, function, tree, seen)
        case ast.Call(func=ast.Attribute(attr="format" | "join") as method):
            return _resolve(method.value, function, tree, seen)
        case ast.Call(func=ast.Name(id=name)):
            (called,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name] or [None]
            returns = [] if called is None else [node.value for node in ast.walk(called) if isinstance(node, ast.Return) and node.value]
            return [text for returned in returns for text in _resolve(returned, called or tree, tree, seen)]
        case ast.Name(id=name) if name not in seen:
            return [text for assigned in _assignments(name, function, tree) for text in _resolve(assigned, function, tree, seen | {name})]
        case _:
            return []


def _assignments(name: str, function: ast.AST, tree: ast.Module) -> list[ast.expr]:
    """Return what is assigned to *name* in the function, by a loop over a table or by an unpacked row too, else at module level."""
    values = list[ast.expr]()
    for node in [*ast.walk(function), *tree.body]:
        pairs = [(target, node.value) for target in node.targets] if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.For):
            table = node.iter.func.value if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Attribute) else node.iter
            pairs.append((node.target, table))
        for target, value in pairs:
            is_last = isinstance(target, ast.Tuple) and ast.unparse(target.elts[-1]) == name
            if ast.unparse(target) == name or is_last:
                values.append(value)
    return values


async def test_the_doctor_names_engines_that_the_running_server_goes_without(tmp_path: Path) -> None:
    """The doctor's own connection works, but the server's does not: here its counters are on a port that nothing listens on."""
    with run_server(tmp_path, counters="redis://127.0.0.1:1", log_format="json") as server:
        rookery = build_platform(Settings(data_dir=server.folder))
        async with rookery.open_for_command():
            findings = await examine(rookery)

    says = [(finding.grade, finding.says) for finding in findings if finding.about == "server"]
    assert says == [
        ("ok", f"runs at {server.url}, process {server.process.pid}"),
        ("warning", "the running server reports for counters: counting locally"),
    ]


async def test_the_doctor_tells_whether_a_client_can_claim_an_address(tmp_path: Path) -> None:
    """A listed proxy that passes on the header of a client, one that drops it, one that is not listed, and another program."""
    proxies = "127.0.0.1"
    with run_server(tmp_path, trusted_proxies=proxies) as server:

        async def check(url: str, trusted: tuple[str, ...] = (proxies,)) -> list[tuple[str, str]]:
            rookery = build_platform(Settings(data_dir=server.folder, base_url=url, trusted_proxies=trusted))
            async with rookery.open_for_command():
                return [(finding.grade, finding.says) for finding in await examine(rookery) if finding.about == "proxy"]

        await check(server.url)  # the key is created with the first encrypted value
        async with run_prefix_proxy(int(server.url.rpartition(":")[2])) as dropping:
            passed_on, dropped, unlisted = await check(server.url), await check(dropping.url), await check(server.url, ())
        gone = await check(dropping.url)
        direct = server.client.get("/healthz", headers={"X-Rookery-Proxy-Check": "AAAA"})

    assert passed_on == [
        ("problem", "the proxy 127.0.0.1 passes on the X-Forwarded-For of clients: anybody can claim an address, also that of an IP list")
    ]
    assert dropped == [("warning", "the proxy 127.0.0.1 sends no X-Forwarded-For: all its clients share its address")]
    assert unlisted == [("ok", f"{server.url} leads here; what a client sends in X-Forwarded-For is ignored")]
    assert [grade for grade, _ in gone] == ["warning"]
    assert "x-rookery-arrival" not in direct.headers
