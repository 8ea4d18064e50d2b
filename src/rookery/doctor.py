"""`rookery doctor`: the problems of an installation, with advice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from rookery.access.models import KeyWithUsage
from rookery.access.networks import contains, parse_proxies
from rookery.access.scopes import ALL_SCOPES
from rookery.engines.embedders import model_files
from rookery.kernel.clock import format_iso
from rookery.kernel.config import Settings
from rookery.kernel.db import describe_pooler
from rookery.kernel.engine_breakers import READS_ONLY
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.http.connection_limit import RESERVED_FILE_DESCRIPTORS, max_open_connections
from rookery.kernel.http.proxy_check import CLAIMED_ADDRESS, fetch_arrival
from rookery.kernel.process_registry import ProcessRegistry
from rookery.kernel.running_server import fetch_engine_states, find_server
from rookery.kernel.sentences import format_count
from rookery.kernel.sqlite import find_damage
from rookery.memory.indexing import DELETE_JOB, EMBED_IMPORTED_JOB, EMBED_JOB, WORDS_JOB
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.notifications.messages import ChannelType
from rookery.tools.models import HealthStatus
from rookery.tools.servers.health_file import ReportedHealth
from rookery.tools.servers.server_state import fetch_health, find_start_fault
from rookery.tools.servers.servers_file import InvalidServersFile, read_servers_file
from rookery.webhooks.models import DisabledReason
from rookery.wiring import STATUS_STARTING, Rookery

_MIB = 1024 * 1024
_MAX_LISTED = 10
_MIN_CALLS = 100
_EXPIRY_WARNING = timedelta(days=7)
_UNUSED_PERIOD = timedelta(days=90)

_BACKLOGS = {
    EMBED_JOB: "to be indexed",
    EMBED_IMPORTED_JOB: "to be indexed after an import",
    WORDS_JOB: "to be written to the full-text index",
    DELETE_JOB: "to be removed from the indexes",
}
"""The purpose of each kind of job for which memories wait."""

_MAX_BACKLOG_AGE = timedelta(minutes=1)

_FIRST_RUN_FILE = "first-run.json"
_RESTORE_ADVICE = "Restore a backup: rookery restore ARCHIVE"
_REBUILD = "rookery brain:reindex"
_ENGINE_FAILURE_ADVICE = "See docs/how-to/engine-failures.md for what works meanwhile."
_READS_ONLY_ADVICE = (
    "Free the disk of its server, or lift the block or the option that refuses writes, and run: rookery doctor. "
    "Then waiting memories are indexed without you. "
    f"{_ENGINE_FAILURE_ADVICE}"
)
_RUNNING_ENGINE_ADVICE = f"If it stays so, restart the server: rookery serve. {_ENGINE_FAILURE_ADVICE}"
_ENGINE_SETTINGS = {
    "database": "ROOKERY_DATABASE_URL",
    "vectors": "ROOKERY_VECTORS",
    "texts": "ROOKERY_TEXTS",
    "counters": "ROOKERY_COUNTERS",
    "embedder": "ROOKERY_EMBEDDER",
    "generation": "ROOKERY_GENERATION",
}
"""The setting with the address of each engine, by the name of its probe."""

_REINDEX_ADVICE = "Stop the server, remove the file, and run: rookery brain:reindex"
_DATABASE_ADVICE = {
    "records.db": _RESTORE_ADVICE,
    "vectors.db": _REINDEX_ADVICE,
    "texts.db": _REINDEX_ADVICE,
    "counters.db": "Stop the server, remove the file, and run: rookery serve. The windows of rate limits start again.",
}
"""The databases of the data folder, and the advice for each damaged one."""

_HEALTH_ADVICE = {
    HealthStatus.OFFLINE.value: "To try it again, and for advice, run: rookery servers check {}",
    HealthStatus.DEGRADED.value: "To try it again, and for advice, run: rookery servers check {}",
    HealthStatus.NEEDS_LOGIN.value: "Run: rookery servers login {}",
}
"""The states of a tool server in which some or all calls fail, and the advice for each."""

_PROXY_ADVICE = (
    "Let the proxy set X-Forwarded-For to the address of its client, as deploy/ does, or remove it from ROOKERY_TRUSTED_PROXIES. "
    "See docs/how-to/behind-a-proxy.md"
)
_PROXY_TRY_ADVICE = "Correct ROOKERY_BASE_URL, or try it from another machine: docs/how-to/behind-a-proxy.md has the request."

_CHANNEL_TEXTS = {
    ChannelType.EMAIL: (
        "e-mail",
        "the SMTP server accepts the login and the sender",
        "Correct ROOKERY_SMTP, restart the server, and run: rookery doctor",
    ),
    ChannelType.WEBPUSH: (
        "Web Push",
        "the VAPID key signs",
        "Correct ROOKERY_VAPID_PRIVATE_KEY, restart the server, and run: rookery doctor",
    ),
}
"""The checked channels: name, the text if the check passes, and the advice if it fails."""

_NO_HEALTH: Mapping[str, ReportedHealth] = {}

FindingGrade = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """
    The result of one check.

    Attributes:
        grade: `problem` if something cannot work, `warning` if something deserves attention.
        advice: The next step, with a command or a setting. Required for every other grade than `ok`.
    """

    about: str
    grade: FindingGrade
    says: str
    advice: str | None = None

    def __post_init__(self) -> None:
        if self.grade != "ok" and not self.advice:
            raise ValueError(f"the finding has no advice: {self.says}")


async def examine(rookery: Rookery, *, deep: bool = False) -> list[DoctorFinding]:
    """
    Run every check. A check that fails is itself a finding, and the others still run.

    Args:
        deep: Also compare the number of memories in the indexes with the records.
    """
    findings = await _check_engines(rookery)
    if findings[0].grade == "ok" or findings[0].says.startswith(READS_ONLY):
        for about, part in (_CHECKS | ({"indexes": _indexes} if deep else {})).items():
            findings += await _run_check(about, part, rookery)
    health = await asyncio.to_thread(fetch_health, rookery.settings.data_dir)
    healthy_names = {finding.about for finding in findings if finding.grade == "ok"}
    findings += [*await _check_server(rookery, healthy_names), _check_disk(rookery)]
    return [*findings, *_check_connections(rookery), *_check_servers_file(rookery, health)]


def examine_without_store(rookery: Rookery) -> list[DoctorFinding]:
    """Run the checks that open nothing and need no data folder."""
    return [*_check_connections(rookery), *_check_servers_file(rookery)]


async def _run_check(about: str, part: Callable[[Rookery], Awaitable[list[DoctorFinding]]], rookery: Rookery) -> list[DoctorFinding]:
    try:
        return await part(rookery)
    except RookeryError as error:
        return [DoctorFinding(about, "problem", error.message, advice="Solve the problems above, then run `rookery doctor` again.")]
    except Exception as error:  # noqa: BLE001 - damaged data raises exceptions of many classes; each is a finding
        text = f"the check failed: {type(error).__name__}: {error}"
        return [DoctorFinding(about, "problem", text, advice=_RESTORE_ADVICE)]


def examine_files(settings: Settings, *, deep: bool = False) -> list[DoctorFinding]:
    """
    Check the files of the data folder before anything opens them.

    Args:
        deep: Check every page of every database (`PRAGMA quick_check`).
    """
    folder, findings = settings.data_dir, list[DoctorFinding]()
    if not folder.is_dir():
        return []
    if mode := folder.stat().st_mode & 0o077:
        text = f"other users can open the data folder {folder} (mode {0o700 | mode:04o})"
        findings.append(DoctorFinding("data folder", "warning", text, advice=f"chmod 700 {folder}"))
    if (folder / _FIRST_RUN_FILE).exists():
        text = f"{folder / _FIRST_RUN_FILE} still contains the first keys in plain text"
        findings.append(
            DoctorFinding("data folder", "warning", text, advice=f"Store them elsewhere, then run: rm {folder / _FIRST_RUN_FILE}")
        )
    for name, advice in _DATABASE_ADVICE.items():
        path = folder / name
        if not path.is_file():
            continue
        reason = "it is empty" if path.stat().st_size == 0 else find_damage(path, deep=deep)
        if reason is not None:
            findings.append(DoctorFinding("files", "problem", f"{path} is damaged: {reason}", advice=advice))
        elif deep:
            findings.append(DoctorFinding("files", "ok", f"every page of {path} is intact"))
    for path in model_files.find_damaged_files(folder):
        text = f"{path} is damaged: its checksum differs from the one recorded when it was written"
        advice = f"Check the disk. This command writes the file again if the embedder uses it. If the warning stays, run: rm {path}"
        findings.append(DoctorFinding("files", "warning", text, advice=advice))
    return findings


def has_no_problem(findings: Sequence[DoctorFinding]) -> bool:
    """Return whether no finding is a problem. Warnings are allowed."""
    return all(finding.grade != "problem" for finding in findings)


async def _check_server(rookery: Rookery, healthy_names: Collection[str]) -> list[DoctorFinding]:
    """Check for a running server, and for engines that it does without although they answer here, *healthy_names*."""
    running = await asyncio.to_thread(find_server, rookery.settings.data_dir)
    if running is None:
        return [DoctorFinding("server", "ok", "no server runs on this data folder")]
    states = await asyncio.to_thread(fetch_engine_states, running)
    faults = [
        DoctorFinding("server", "warning", f"the running server reports for {name}: {state}", advice=_RUNNING_ENGINE_ADVICE)
        for name, state in states.items()
        if name in healthy_names and state not in {"ok", STATUS_STARTING}
    ]
    return [DoctorFinding("server", "ok", f"runs at {running.url}, process {running.pid}"), *faults]


async def _check_engines(rookery: Rookery) -> list[DoctorFinding]:
    findings = list[DoctorFinding]()
    for name, probe in rookery.probes.items():
        if name == "servers":  # `_check_tool_servers` reports them with the reason
            continue
        try:
            if name == "embedder":
                await rookery.engines.embedder.warm()  # its probe loads no model
            with contextlib.suppress(EngineReadOnly, StorageFull):  # the probe has the state
                await _try_write(rookery, name)
            state = await probe()
        except Exception as error:  # noqa: BLE001 - damaged files raise exceptions of many classes; each is a finding
            reason = error.message if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
            findings.append(DoctorFinding(name, "problem", reason, advice=_advise_on_engine(name)))
        else:
            text = f"{state}: {rookery.engines.embedder.description}" if name == "embedder" else state
            if state.startswith(READS_ONLY):
                findings.append(DoctorFinding(name, "problem", text, advice=_READS_ONLY_ADVICE))
                continue
            is_ok = state == "ok"
            findings.append(DoctorFinding(name, "ok" if is_ok else "warning", text, advice=None if is_ok else _advise_on_engine(name)))
    return findings


async def _try_write(rookery: Rookery, name: str) -> None:
    """Write to an index on a server what changes nothing, because it may accept only reads."""
    if name in ("vectors", "texts"):
        await rookery.memory.indexer.check_writes(name)


def _advise_on_engine(name: str) -> str:
    if name not in _ENGINE_SETTINGS:  # the processes of a server
        return "Restart the server: rookery serve"
    return f"Start the engine, or correct {_ENGINE_SETTINGS[name]}, and run: rookery doctor. {_ENGINE_FAILURE_ADVICE}"


async def _check_memory(rookery: Rookery) -> list[DoctorFinding]:
    incomplete = await _check_embedding_migration(rookery)
    if incomplete:
        return incomplete
    stale = await rookery.memory.reindexer.count(ReindexRequest(is_stale=True))
    if not stale:
        return [DoctorFinding("memory", "ok", "the index of every memory is current")]
    text = f"memories not indexed in their current version by the current embedder ({rookery.engines.embedder.model}): {stale:,}"
    advice = "A running server indexes new and changed memories. For all others, run: rookery brain:reindex --stale"
    return [DoctorFinding("memory", "warning", text, advice=advice)]


async def _indexes(rookery: Rookery) -> list[DoctorFinding]:
    """Compare the indexes with the records, workspace by workspace."""
    compared, orphans = await rookery.memory.index_check.compare(), await rookery.memory.orphaned_texts.count()
    findings = list[DoctorFinding]()
    if orphans:
        text = f"the full-text index contains {format_count(orphans, 'text')} without a memory, which a killed process left"
        findings.append(
            DoctorFinding("indexes", "problem", text, advice="Erase them: rookery brain:forget --traces (the server may keep running)")
        )
    if not compared.gaps and not orphans:
        text = f"both contain the {format_count(compared.expected, 'memory', 'memories')} that the records mark as indexed"
        return [DoctorFinding("indexes", "ok", text)]
    for gap in compared.gaps[:_MAX_LISTED]:
        name = "vector index" if gap.index == "vectors" else "full-text index"
        text = (
            f"workspace {gap.workspace_id}: the {name} lacks at least {gap.missing:,} of {format_count(gap.expected, 'memory', 'memories')}"
        )
        advice = _REBUILD + (" --elastic-only" if gap.index == "texts" else "") + " (the server may keep running)"
        findings.append(DoctorFinding("indexes", "problem", text, advice=advice))
    if len(compared.gaps) > _MAX_LISTED:
        text = f"{len(compared.gaps) - _MAX_LISTED:,} more workspace indexes lack memories"
        findings.append(DoctorFinding("indexes", "problem", text, advice=_REBUILD))
    return findings


async def _check_pending_erasure(rookery: Rookery) -> list[DoctorFinding]:
    """Check for secure erasures that were interrupted."""
    pending = await rookery.memory.maintenance.erasure.list_pending()
    if not pending:
        return []
    names = " and ".join(erasure.name for erasure in pending)
    text = f"files may still contain {names}, deleted at {format_iso(min(erasure.at for erasure in pending))} or later"
    return [DoctorFinding("memory", "warning", text, advice="To finish the erasure, run: rookery brain:reindex --stale")]


async def _check_embedding_migration(rookery: Rookery) -> list[DoctorFinding]:
    """Check for workspaces that still use vectors of a previous embedder."""
    try:
        lags = await rookery.memory.migration.list_progress()
    except EngineUnavailable:  # reported by `_check_engines`
        return []
    findings = list[DoctorFinding]()
    for lag in lags[:_MAX_LISTED]:
        total_text = format_count(lag.total, "memory has", "memories have")
        progress_text = f"{lag.total - lag.pending:,} of {total_text} vectors of {rookery.engines.embedder.model}"
        meanwhile = f"until all have, recall uses those of {lag.active_version.model}"
        advice = "Run: rookery brain:reindex --stale (it can be interrupted and run again, and the server may keep running)"
        if not lag.has_embedder:
            meanwhile = f"the embedder of the others ({lag.active_version.model}) is not configured, so recall uses full-text search"
            advice = f"Set ROOKERY_EMBEDDER_PREVIOUS to that embedder for now. In any case: {advice}"
        text = f"workspace {lag.workspace_id}: {progress_text}; {meanwhile}"
        findings.append(DoctorFinding("memory", "warning", text, advice=advice))
    return findings


async def _check_poolers(rookery: Rookery) -> list[DoctorFinding]:
    """Check for poolers in transaction mode before PostgreSQL."""
    settings = rookery.settings
    findings = list[DoctorFinding]()
    for name, url in {"database": settings.database_url, "vectors": settings.vectors, "texts": settings.texts}.items():
        losses = await describe_pooler(url.reveal(), setting=_ENGINE_SETTINGS[name])
        if losses is None:
            continue
        text = f"{name}: {losses}" + (", and wake-ups of other processes are polls" if name == "database" else "")
        advice = f"To have all of it, let {_ENGINE_SETTINGS[name]} lead to PostgreSQL itself, or to a pooler in session mode."
        findings.append(DoctorFinding("pooler", "warning", text, advice=advice))
    return findings


async def _check_backlog(rookery: Rookery) -> list[DoctorFinding]:
    """Check for memories that have waited long for an index."""
    stats = await rookery.runtime.jobs.get_stats()
    findings = list[DoctorFinding]()
    for kind, text in _BACKLOGS.items():
        waiting = stats.get(kind)
        if waiting is None or waiting.oldest_age < _MAX_BACKLOG_AGE:
            continue
        minutes = format_count(int(waiting.oldest_age.total_seconds() // 60), "minute")
        count = format_count(waiting.waiting, "memory waits", "memories wait")
        advice = "A running server does this work. If the number does not fall, see the engines above, and run: rookery doctor --deep"
        findings.append(DoctorFinding("backlog", "warning", f"{count} {text}, the oldest for {minutes}", advice=advice))
    return findings


async def _check_failed_jobs(rookery: Rookery) -> list[DoctorFinding]:
    failed = await rookery.runtime.jobs.list_failed(_MAX_LISTED + 1)
    if not failed:
        return [DoctorFinding("jobs", "ok", "no job has failed")]
    more = f" (the first {_MAX_LISTED} are shown)" if len(failed) > _MAX_LISTED else ""
    summary = "; ".join(
        f"{job.kind} {job.payload.get('memory_id', job.id)}: {reason.splitlines()[0][:120]}" for job, reason in failed[:_MAX_LISTED]
    )
    advice = "They are retried daily, and when an engine becomes available again. To index memories now, run: rookery brain:reindex --stale"
    return [DoctorFinding("jobs", "warning", f"failed{more}: {summary}", advice=advice)]


async def _check_processes(rookery: Rookery) -> list[DoctorFinding]:
    live = await rookery.runtime.use(ProcessRegistry).list_live()
    if not live:
        return []
    hosts = len({process.host for process in live})
    listed = "; ".join(
        f"{process.kind} {process.pid} of {process.host} with {process.folder}, since {format_iso(process.started_at)}"
        for process in live[:_MAX_LISTED]
    )
    return [DoctorFinding("processes", "ok", f"{len(live)} on {format_count(hosts, 'host')}: {listed}")]


async def _check_client_addresses(rookery: Rookery) -> list[DoctorFinding]:
    stats = await rookery.access.usage.get_address_stats()
    if stats.call_count < _MIN_CALLS or stats.key_count < 2 or stats.address_count > 1:
        return []
    text = (
        f"{stats.call_count:,} calls of {stats.key_count} keys all came from {stats.only_address}, so IP lists cannot distinguish clients"
    )
    advice = "If the server is behind a proxy, add the proxy's address to ROOKERY_TRUSTED_PROXIES."
    return [DoctorFinding("addresses", "warning", text, advice=advice)]


async def _check_proxy(rookery: Rookery) -> list[DoctorFinding]:
    """Check at the public address that the proxy does not pass on an address that a client made up."""
    settings = rookery.settings
    url = settings.base_url or settings.api_url or settings.mcp_url
    if url is None or not rookery.sealing.keys.load_keys() or await asyncio.to_thread(find_server, settings.data_dir) is None:
        return []
    try:
        arrival = await asyncio.to_thread(fetch_arrival, url, rookery.sealing.keys)
    except OSError as error:
        reason = getattr(error, "reason", error)
        return [DoctorFinding("proxy", "warning", f"{url} cannot be reached from here: {reason}", advice=_PROXY_TRY_ADVICE)]
    if arrival is None:
        return [DoctorFinding("proxy", "warning", f"another program, or another installation, answers at {url}", advice=_PROXY_TRY_ADVICE)]
    if not contains(parse_proxies(settings.trusted_proxies), arrival.peer):
        if arrival.forwarded in {"", CLAIMED_ADDRESS}:
            return [DoctorFinding("proxy", "ok", f"{url} leads here; what a client sends in X-Forwarded-For is ignored")]
        text = f"requests to {url} come from {arrival.peer}, a proxy that is not listed: all its clients share that address"
        return [DoctorFinding("proxy", "warning", text, advice=f"Add {arrival.peer} to ROOKERY_TRUSTED_PROXIES, and restart the server.")]
    if arrival.forwarded == CLAIMED_ADDRESS:
        text = f"the proxy {arrival.peer} passes on the X-Forwarded-For of clients: anybody can claim an address, also that of an IP list"
        return [DoctorFinding("proxy", "problem", text, advice=_PROXY_ADVICE)]
    if not arrival.forwarded:
        text = f"the proxy {arrival.peer} sends no X-Forwarded-For: all its clients share its address"
        return [DoctorFinding("proxy", "warning", text, advice=_PROXY_ADVICE)]
    return [DoctorFinding("proxy", "ok", f"the proxy {arrival.peer} tells the address of its client itself")]


async def _check_sealing(rookery: Rookery) -> list[DoctorFinding]:
    """Check that encrypted values can be decrypted, and that only the owner may read the key."""
    path, is_set = rookery.settings.data_dir / "secret.key", rookery.settings.secret_key is not None
    try:
        report = await rookery.sealing.rotation.inspect_columns()
    except RookeryError as error:
        advice = "Set ROOKERY_SECRET_KEY to the key of this data, or restore secret.key, and run: rookery doctor"
        return [DoctorFinding("secrets", "problem", error.message, advice=advice)]
    if report.state is None:
        return [DoctorFinding("secrets", "ok", "nothing is encrypted yet; the first start creates the key")]
    if report.missing_keys or report.unreadable_count:
        missing = f"; missing keys: {', '.join(report.missing_keys)}" if report.missing_keys else ": they are damaged"
        text = f"at least {report.unreadable_count:,} of {report.sealed_count:,} encrypted values cannot be decrypted{missing}"
        advice = "Restore the key, or set ROOKERY_SECRET_KEY_PREVIOUS to it. If it is lost, run: rookery secrets rotate --lost"
        return [DoctorFinding("secrets", "problem", text, advice=advice)]
    if report.file_mode is not None and report.file_mode & 0o077:
        text = f"other users can read {path} (mode {report.file_mode:04o})"
        return [DoctorFinding("secrets", "problem", text, advice=f"chmod 600 {path}, then: rookery secrets rotate")]
    if report.is_rotation_due:
        text = "the secret key was changed, and some values are still encrypted with the old one"
        return [DoctorFinding("secrets", "warning", text, advice="To finish the change, run: rookery secrets rotate")]
    key_location = "ROOKERY_SECRET_KEY" if is_set else str(path)
    return [DoctorFinding("secrets", "ok", f"{key_location} decrypts all {format_count(report.sealed_count, 'encrypted value')}")]


async def _check_keys(rookery: Rookery) -> list[DoctorFinding]:
    """Check for active keys that expire soon, and for keys with all scopes that are unused."""
    key_services = ("keys", rookery.access.api_keys), ("agent-keys", rookery.access.agent_keys)
    findings = list[DoctorFinding]()
    for command, keys in key_services:
        expiring = await keys.list_expiring(within=_EXPIRY_WARNING, limit=_MAX_LISTED + 1)
        if expiring:
            descriptions = _list_entries(expiring, lambda entry: f"at {format_iso(entry.key.expires_at)}" if entry.key.expires_at else "")
            advice = f"For each, run: rookery {command} extend {expiring[0].key.id} --expires-at 90d (or --never)"
            text = f"these active keys expire within {_EXPIRY_WARNING.days} days: {descriptions}"
            findings.append(DoctorFinding("keys", "warning", text, advice=advice))
        idle = await keys.list_unused(ALL_SCOPES, unused_for=_UNUSED_PERIOD, limit=_MAX_LISTED + 1)
        if idle:
            descriptions = _list_entries(
                idle, lambda entry: f"last used {format_iso(entry.usage.last_used_at)}" if entry.usage.last_used_at else "never used"
            )
            key_id = idle[0].key.id
            advice = (
                f"If nobody needs it: rookery {command} delete {key_id}. To be sure, suspend it first: rookery {command} suspend {key_id}"
            )
            text = f"these keys have all scopes and have been unused for {_UNUSED_PERIOD.days} days: {descriptions}"
            findings.append(DoctorFinding("keys", "warning", text, advice=advice))
    ok = f"no key expires within {_EXPIRY_WARNING.days} days, and no key with all scopes has been unused for {_UNUSED_PERIOD.days} days"
    return findings or [DoctorFinding("keys", "ok", ok)]


def _list_entries(entries: Sequence[KeyWithUsage], describe: Callable[[KeyWithUsage], str]) -> str:
    descriptions = [
        f"{entry.key.name!r} ({entry.key.id}, workspace {entry.key.workspace_id}, {describe(entry)})" for entry in entries[:_MAX_LISTED]
    ]
    return "; ".join(descriptions) + (f"; and more than these {_MAX_LISTED}" if len(entries) > _MAX_LISTED else "")


async def _check_audit(rookery: Rookery) -> list[DoctorFinding]:
    """Check the last record of each audit chain. This is cheap; `rookery audit verify` checks all records."""
    broken_chains = await rookery.access.audit.list_broken_ends()
    if not broken_chains:
        return [DoctorFinding("audit", "ok", "the end of each chain is intact (to check every record: rookery audit verify)")]
    descriptions = "; ".join(f"workspace {end.workspace_id}: {end.reason}" for end in broken_chains[:_MAX_LISTED])
    advice = "The record store was changed by hand or damaged. To find the first wrong record, run: rookery audit verify"
    return [DoctorFinding("audit", "problem", f"the audit log was changed: {descriptions}", advice=advice)]


def _check_disk(rookery: Rookery) -> DoctorFinding:
    free, min_free_mib = shutil.disk_usage(rookery.settings.data_dir).free // _MIB, rookery.settings.min_free_disk_mb
    if free < min_free_mib:
        advice = "Writes are rejected. Free space, move the folder with ROOKERY_DATA_DIR, or lower ROOKERY_MIN_FREE_DISK_MB."
        return DoctorFinding("disk", "problem", f"{free:,} MiB are free, {min_free_mib:,} are required", advice=advice)
    return DoctorFinding("disk", "ok", f"{free:,} MiB are free")


def _check_connections(rookery: Rookery) -> list[DoctorFinding]:
    limit = rookery.settings.max_connections
    possible = max_open_connections(limit)
    if possible == limit:
        return []
    text = f"the limit on open files allows {possible:,} connections, fewer than ROOKERY_MAX_CONNECTIONS, {limit:,}"
    advice = f"Raise the hard limit on open files (`ulimit -Hn`, or LimitNOFILE of systemd) to {limit + RESERVED_FILE_DESCRIPTORS:,}."
    return [DoctorFinding("connections", "warning", text, advice=advice)]


async def _check_tool_servers(rookery: Rookery) -> list[DoctorFinding]:
    """Check for servers of workspaces that cannot be used, and for servers and tools that were stopped."""
    findings = list[DoctorFinding]()
    for server in (await rookery.tools.workspace_servers.list_faulty())[:_MAX_LISTED]:
        advice = f"Change it over HTTP, or run: rookery servers remove {server.id} --workspace {server.owner}"
        text = f"{server.id!r} of workspace {server.owner} cannot be used: {server.fault}"
        findings.append(DoctorFinding("tool servers", "warning", text, advice=advice))
    for stop in (await rookery.tools.kill_switch.list_stops())[:_MAX_LISTED]:
        target = "/".join(part for part in (stop.server_id, stop.tool) if part) or "all tools"
        scope = f"of workspace {stop.workspace_id}" if stop.workspace_id else "of all workspaces"
        text = f"{target} {scope}: stopped since {format_iso(stop.stopped_at)}" + (f" ({stop.reason})" if stop.reason else "")
        arguments = "" if target == "all tools" else f"{target} "
        arguments += f"--workspace {stop.workspace_id}" if stop.workspace_id else "--all-workspaces"
        advice = f"To allow calls again, run: rookery tools start {arguments}"
        findings.append(DoctorFinding("tool servers", "warning", text, advice=advice))
    return findings


async def _check_webhooks(rookery: Rookery) -> list[DoctorFinding]:
    """Check for webhooks that were disabled automatically."""
    findings = list[DoctorFinding]()
    for endpoint in await rookery.webhooks.endpoints.list_auto_disabled(limit=_MAX_LISTED):
        is_gone = endpoint.disabled_reason is DisabledReason.GONE
        reason = "its receiver answered 410" if is_gone else f"its last {format_count(endpoint.failures, 'delivery', 'deliveries')} failed"
        since = "" if endpoint.disabled_at is None else f" since {format_iso(endpoint.disabled_at)}"
        host = urlsplit(endpoint.url).netloc  # the rest of the URL may contain a token
        is_sandboxed = endpoint.workspace_id != endpoint.public_workspace_id
        owner = f"workspace {endpoint.public_workspace_id}"
        owner = f"the sandbox of {owner}" if is_sandboxed else owner
        text = f"{endpoint.id} of {owner}, to {host}, is disabled{since}: {reason}"
        arguments = f"{endpoint.id} --workspace {endpoint.public_workspace_id}"
        advice = f"Once the receiver works, run: rookery webhooks enable {arguments}, then: rookery webhooks resend-failed {arguments}"
        if is_sandboxed:
            path = f"/api/v1/webhooks/{endpoint.id}"
            advice = f'Once the receiver works, send PATCH {path} {{"enabled": true}} with a test key. Otherwise send DELETE {path}.'
        findings.append(DoctorFinding("webhooks", "warning", text, advice=advice))
    return findings


async def _check_notification_channels(rookery: Rookery) -> list[DoctorFinding]:
    """Log in to the SMTP server, and check the VAPID key and its subject. Nothing is reported if nothing is configured."""
    findings = list[DoctorFinding]()
    for check in await rookery.notifications.channel_checker.check_all():
        name, ok, fault_advice = _CHANNEL_TEXTS[check.channel]
        if check.fault is not None:
            findings.append(DoctorFinding("notifications", "problem", f"{name} cannot send: {check.fault}", advice=fault_advice))
        elif check.warning is not None:
            advice = "Set ROOKERY_VAPID_SUBJECT to your mailto: or https: address."
            findings.append(DoctorFinding("notifications", "warning", f"{name}: {check.warning}", advice=advice))
        else:
            findings.append(DoctorFinding("notifications", "ok", f"{name}: {ok}"))
    for wait in await rookery.notifications.list_shared_waits():
        text = f"{_CHANNEL_TEXTS[wait.channel_type][0]} takes no messages until {format_iso(wait.until)}: {wait.reason}"
        advice = "Campaigns go on by themselves. To see its answer to one message, run: rookery notify test CAMPAIGN SUBSCRIBER"
        findings.append(DoctorFinding("notifications", "warning", text, advice=advice))
    return findings


def _check_servers_file(rookery: Rookery, health: Mapping[str, ReportedHealth] = _NO_HEALTH) -> list[DoctorFinding]:
    """Check the file, and whether its servers can start. *health*: that of each server in the running Rookery."""
    path = rookery.settings.servers_file
    try:
        servers_file = read_servers_file(path, os.environ)
    except InvalidServersFile as error:
        advice = "A running server keeps its last valid version. Correct the file, then run: rookery servers check"
        return [DoctorFinding("tool servers", "problem", f"{path}: {error}", advice=advice)]
    advice = "Correct the entry, then run: rookery servers check"
    notes = [DoctorFinding("tool servers", "warning", f"{path}: {warning}", advice=advice) for warning in servers_file.warnings]
    for server in servers_file.servers.values():
        if not server.enabled or server.fault is not None:
            continue
        if (reason := find_start_fault(server, os.environ)) is not None:
            advice = "Correct its entry or install the program, then run: rookery servers check"
            notes.append(DoctorFinding("tool servers", "warning", f"{server.id!r} cannot start: {reason}", advice=advice))
        elif (reported := health.get(server.id)) is not None and (finding := _describe_health(server.id, reported)) is not None:
            notes.append(finding)
    names = ", ".join(sorted(servers_file.servers)) or "only the built-in servers"
    return notes or [DoctorFinding("tool servers", "ok", f"{path}: {names}")]


def _describe_health(server_id: str, reported: ReportedHealth) -> DoctorFinding | None:
    """Return a warning if a server does not work fully in the running Rookery, or offers nothing."""
    if reported.health in _HEALTH_ADVICE:
        text = f"{server_id!r} is {reported.health} in the running server" + (f": {reported.reason}" if reported.reason else "")
        return DoctorFinding("tool servers", "warning", text, advice=_HEALTH_ADVICE[reported.health].format(server_id))
    if reported.health == HealthStatus.ONLINE and reported.feature_count == 0:
        text = f"{server_id!r} is online in the running server, but lists no tools, resources or prompts"
        advice = f"Many servers list nothing without their credentials. Set them in its entry, then run: rookery servers check {server_id}"
        return DoctorFinding("tool servers", "warning", text, advice=advice)
    return None


_CHECKS: dict[str, Callable[[Rookery], Awaitable[list[DoctorFinding]]]] = {
    "memory": _check_memory,
    "traces": _check_pending_erasure,
    "processes": _check_processes,
    "backlog": _check_backlog,
    "pooler": _check_poolers,
    "jobs": _check_failed_jobs,
    "addresses": _check_client_addresses,
    "proxy": _check_proxy,
    "secrets": _check_sealing,
    "keys": _check_keys,
    "audit": _check_audit,
    "tool servers": _check_tool_servers,
    "webhooks": _check_webhooks,
    "notifications": _check_notification_channels,
}
"""The checks that need the record store, in the order of the output."""
