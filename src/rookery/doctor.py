"""`rookery doctor`: what is wrong with an installation, in words, with what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from rookery.access.models import KeyWithUsage
from rookery.access.scopes import ALL_SCOPES
from rookery.engines.embedders import model_files
from rookery.kernel.clock import format_iso
from rookery.kernel.config import Settings
from rookery.kernel.errors import EngineUnavailable, RookeryError
from rookery.kernel.http.connection_limit import RESERVED_FILE_DESCRIPTORS, max_open_connections
from rookery.kernel.running_server import find_server
from rookery.kernel.sqlite import find_damage
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.tools.servers.servers_file import InvalidServersFile, read_servers_file
from rookery.tools.servers.start_check import find_start_fault
from rookery.webhooks.models import DisabledReason
from rookery.wiring import Rookery

_MIB = 1024 * 1024
_MAX_LISTED = 10
_MIN_CALLS = 100
_EXPIRY_WARNING = timedelta(days=7)
_UNUSED_PERIOD = timedelta(days=90)

_FIRST_RUN_FILE = "first-run.json"
_RESTORE_ADVICE = "Restore a backup: rookery restore ARCHIVE"
_REBUILD = "rookery brain:reindex"
_REINDEX_ADVICE = "Stop the server, remove the file, and run: rookery brain:reindex"
_DATABASE_ADVICE = {
    "records.db": _RESTORE_ADVICE,
    "vectors.db": _REINDEX_ADVICE,
    "texts.db": _REINDEX_ADVICE,
    "counters.db": "Stop the server and remove the file: the windows of rate limits begin anew.",
}
"""The databases of the data folder, and what mends each."""

FindingGrade = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """
    One thing that was looked at.

    Attributes:
        grade: A problem stops something from working; a warning is worth a look.
        advice: What to do; None where nothing is.
    """

    about: str
    grade: FindingGrade
    says: str
    advice: str | None = None


async def examine(rookery: Rookery, *, deep: bool = False) -> list[DoctorFinding]:
    """
    Examine every part; a part that cannot be examined is itself a finding, and the others are examined all the same.

    Args:
        deep: Compare also how many memories the indexes hold with how many the records call indexed.
    """
    found = await _check_engines(rookery)
    if found[0].grade == "ok":
        for about, part in (_CHECKS | ({"indexes": _indexes} if deep else {})).items():
            found += await _run_check(about, part, rookery)
    return [*found, await _check_server(rookery), _check_disk(rookery), *_check_connections(rookery), *_check_servers_file(rookery)]


async def _run_check(about: str, part: Callable[[Rookery], Awaitable[list[DoctorFinding]]], rookery: Rookery) -> list[DoctorFinding]:
    try:
        return await part(rookery)
    except RookeryError as error:
        return [DoctorFinding(about=about, grade="problem", says=error.message, advice="Mend what is named above, and run doctor again.")]
    except Exception as error:  # noqa: BLE001 - damaged data raises many classes; whatever it is, it is a finding
        says = f"cannot be examined: {type(error).__name__}: {error}"
        return [DoctorFinding(about=about, grade="problem", says=says, advice=_RESTORE_ADVICE)]


def examine_files(settings: Settings, *, deep: bool = False) -> list[DoctorFinding]:
    """
    Examine the files of the data folder, before anything opens them.

    Args:
        deep: Read every page of every database (`PRAGMA quick_check`).
    """
    folder, found = settings.data_dir, list[DoctorFinding]()
    if not folder.is_dir():
        return []
    if mode := folder.stat().st_mode & 0o077:
        says = f"others may open the data folder {folder} (mode {0o700 | mode:04o})"
        found.append(DoctorFinding(about="data folder", grade="warning", says=says, advice=f"chmod 700 {folder}"))
    if (folder / _FIRST_RUN_FILE).exists():
        says = f"{folder / _FIRST_RUN_FILE} still has the first keys in plain text"
        found.append(DoctorFinding(about="data folder", grade="warning", says=says, advice="Store them elsewhere and remove the file."))
    for name, mend in _DATABASE_ADVICE.items():
        path = folder / name
        if not path.is_file():
            continue
        reason = "it is empty" if path.stat().st_size == 0 else find_damage(path, deep=deep)
        if reason is not None:
            found.append(DoctorFinding(about="files", grade="problem", says=f"{path} is damaged: {reason}", advice=mend))
        elif deep:
            found.append(DoctorFinding(about="files", grade="ok", says=f"every page of {path} is sound"))
    for path in model_files.find_damaged_graphs(folder):
        says = f"{path} is damaged: it does not have the digest with which it was written"
        advice = "The next start writes the file anew; so does this command. Examine the disk."
        found.append(DoctorFinding(about="files", grade="warning", says=says, advice=advice))
    return found


def has_no_problem(findings: Sequence[DoctorFinding]) -> bool:
    """Tell whether there is no problem; warnings are none."""
    return all(finding.grade != "problem" for finding in findings)


async def _check_server(rookery: Rookery) -> DoctorFinding:
    running = await asyncio.to_thread(find_server, rookery.settings.data_dir)
    says = f"runs at {running.url}, process {running.pid}" if running else "none answers on this data folder"
    return DoctorFinding(about="server", grade="ok", says=says)


async def _check_engines(rookery: Rookery) -> list[DoctorFinding]:
    found = list[DoctorFinding]()
    for name, probe in rookery.probes.items():
        if name == "servers":  # looked at below, with the reason
            continue
        try:
            state = await probe()
        except Exception as error:  # noqa: BLE001 - damaged files raise many classes; whatever it is, it is a finding
            reason = error.message if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
            found.append(
                DoctorFinding(about=name, grade="problem", says=reason, advice=f"See ROOKERY_{name.upper()} in docs/reference/settings.md.")
            )
        else:
            found.append(DoctorFinding(about=name, grade="ok" if state == "ok" else "warning", says=state))
    return found


async def _check_memory(rookery: Rookery) -> list[DoctorFinding]:
    lags = await _check_embedding_migration(rookery)
    if lags:
        return lags
    stale = await rookery.reindexer.count(ReindexRequest(is_stale=True))
    if not stale:
        return [DoctorFinding(about="memory", grade="ok", says="every memory is indexed as it is now")]
    says = f"{stale:,} memories are not indexed as they are now, by the embedder of now ({rookery.embedder.model})"
    advice = "New and changed ones a running server works off; cleaned ones, and all others: rookery brain:reindex --stale"
    return [DoctorFinding(about="memory", grade="warning", says=says, advice=advice)]


async def _indexes(rookery: Rookery) -> list[DoctorFinding]:
    """Compare what the indexes hold with the records, workspace by workspace."""
    compared = await rookery.memory.index_check.compare()
    if not compared.gaps:
        says = f"both hold the {compared.expected:,} memories that the records call indexed"
        return [DoctorFinding(about="indexes", grade="ok", says=says)]
    found = list[DoctorFinding]()
    for gap in compared.gaps[:_MAX_LISTED]:
        name = "vector index" if gap.index == "vectors" else "full-text index"
        says = f"workspace {gap.workspace_id}: the {name} lacks at least {gap.missing:,} of {gap.expected:,} memories that it should find"
        advice = _REBUILD + (" --elastic-only" if gap.index == "texts" else "") + "; the server may run meanwhile."
        found.append(DoctorFinding(about="indexes", grade="problem", says=says, advice=advice))
    if len(compared.gaps) > _MAX_LISTED:
        says = f"{len(compared.gaps) - _MAX_LISTED:,} more indexes of workspaces lack memories"
        found.append(DoctorFinding(about="indexes", grade="problem", says=says, advice=_REBUILD))
    return found


async def _check_pending_erasure(rookery: Rookery) -> list[DoctorFinding]:
    """Look whether a command that was to leave no trace was ended before."""
    owed = await rookery.memory.maintenance.erasure.list_pending()
    if not owed:
        return []
    says = f"files may still have {' and '.join(mark.name for mark in owed)}, since {format_iso(min(mark.at for mark in owed))}"
    return [DoctorFinding(about="memory", grade="warning", says=says, advice="It is ended by: rookery brain:reindex --stale")]


async def _check_embedding_migration(rookery: Rookery) -> list[DoctorFinding]:
    """Look for workspaces in which the vectors of a former embedder answer, or nobody's."""
    try:
        lags = await rookery.memory.migration.list_progress()
    except EngineUnavailable:  # told with the engines
        return []
    found = list[DoctorFinding]()
    for lag in lags[:_MAX_LISTED]:
        behind = lag.workspace
        done = f"{behind.total - behind.pending:,} of {behind.total:,} memories have vectors of {rookery.embedder.model}"
        meanwhile = f"until all have, those of {behind.active_version.model} answer"
        advice = "rookery brain:reindex --stale; it may be stopped and run again, and the server may run meanwhile."
        if not lag.has_embedder:
            meanwhile = f"the embedder of the others ({behind.active_version.model}) is not known any more, so recall goes by words"
            advice = f"Name it in ROOKERY_EMBEDDER_PREVIOUS for the time being, and in any case: {advice}"
        says = f"workspace {behind.workspace_id}: {done}; {meanwhile}"
        found.append(DoctorFinding(about="memory", grade="warning", says=says, advice=advice))
    return found


async def _check_failed_jobs(rookery: Rookery) -> list[DoctorFinding]:
    failed = await rookery.jobs.list_failed(_MAX_LISTED + 1)
    if not failed:
        return [DoctorFinding(about="jobs", grade="ok", says="none has failed")]
    more = f" (the first {_MAX_LISTED} are shown)" if len(failed) > _MAX_LISTED else ""
    shown = "; ".join(
        f"{job.kind} {job.payload.get('memory_id', job.id)}: {reason.splitlines()[0][:120]}" for job, reason in failed[:_MAX_LISTED]
    )
    advice = "They are tried again daily, and when an engine recovers."
    return [DoctorFinding(about="jobs", grade="warning", says=f"failed{more}: {shown}", advice=advice)]


async def _check_client_addresses(rookery: Rookery) -> list[DoctorFinding]:
    seen = await rookery.access.usage.get_address_stats()
    if seen.call_count < _MIN_CALLS or seen.key_count < 2 or seen.address_count > 1:
        return []
    says = (
        f"{seen.call_count:,} calls of {seen.key_count} keys all came from {seen.only_address}: address restrictions cannot tell them apart"
    )
    return [DoctorFinding(about="addresses", grade="warning", says=says, advice="Behind a proxy, name it in ROOKERY_TRUSTED_PROXIES.")]


async def _check_sealing(rookery: Rookery) -> DoctorFinding:
    """Look whether what is sealed can be opened, and whether others may read the key."""
    path, is_set = rookery.settings.data_dir / "secret.key", rookery.settings.secret_key is not None
    try:
        found = await rookery.sealing.rotation.inspect_columns()
    except RookeryError as error:
        return DoctorFinding(about="secrets", grade="problem", says=error.message)
    if found.state is None:
        return DoctorFinding(about="secrets", grade="ok", says="nothing was sealed yet; the first start makes the key")
    if found.missing_keys or found.unreadable_count:
        missing = f", for which these keys are missing: {', '.join(found.missing_keys)}" if found.missing_keys else ": they are damaged"
        says = f"at least {found.unreadable_count:,} of {found.sealed_count:,} sealed texts cannot be opened{missing}"
        advice = "Bring the key back, or name it in ROOKERY_SECRET_KEY_PREVIOUS; if it is lost: rookery secrets rotate --lost"
        return DoctorFinding(about="secrets", grade="problem", says=says, advice=advice)
    if found.file_mode is not None and found.file_mode & 0o077:
        says = f"others may read {path} (mode {found.file_mode:04o})"
        return DoctorFinding(about="secrets", grade="problem", says=says, advice=f"chmod 600 {path}, then: rookery secrets rotate")
    if found.is_rotation_due:
        says = "the secret key was changed, and not everything is sealed by the new one yet"
        return DoctorFinding(about="secrets", grade="warning", says=says, advice="rookery secrets rotate ends the change.")
    where = "ROOKERY_SECRET_KEY" if is_set else str(path)
    return DoctorFinding(about="secrets", grade="ok", says=f"{where} opens what is sealed ({found.sealed_count:,} texts)")


async def _check_keys(rookery: Rookery) -> list[DoctorFinding]:
    """Look for keys that somebody will miss soon, and for all-powerful ones that nobody would."""
    rings = ("keys", rookery.access.api_keys), ("agent-keys", rookery.access.agent_keys)
    found = list[DoctorFinding]()
    for group, ring in rings:
        expiring = await ring.list_expiring(within=_EXPIRY_WARNING, limit=_MAX_LISTED + 1)
        if expiring:
            told = _list_entries(expiring, lambda entry: f"at {format_iso(entry.key.expires_at)}" if entry.key.expires_at else "")
            advice = f"rookery {group} extend KEY_ID --expires-at 90d, or --never"
            says = f"active, but will expire within {_EXPIRY_WARNING.days} days: {told}"
            found.append(DoctorFinding(about="keys", grade="warning", says=says, advice=advice))
        idle = await ring.list_unused(ALL_SCOPES, unused_for=_UNUSED_PERIOD, limit=_MAX_LISTED + 1)
        if idle:
            told = _list_entries(
                idle, lambda entry: f"last used {format_iso(entry.usage.last_used_at)}" if entry.usage.last_used_at else "never used"
            )
            advice = f"If nobody needs it: rookery {group} delete KEY_ID; to be safe first: rookery {group} suspend KEY_ID"
            says = f"may do everything, unused for {_UNUSED_PERIOD.days} days: {told}"
            found.append(DoctorFinding(about="keys", grade="warning", says=says, advice=advice))
    calm = f"none expires within {_EXPIRY_WARNING.days} days, and none that may do everything is unused for {_UNUSED_PERIOD.days}"
    return found or [DoctorFinding(about="keys", grade="ok", says=calm)]


def _list_entries(entries: Sequence[KeyWithUsage], what: Callable[[KeyWithUsage], str]) -> str:
    named = [f"{each.key.name!r} ({each.key.id}, workspace {each.key.workspace_id}, {what(each)})" for each in entries[:_MAX_LISTED]]
    return "; ".join(named) + (f"; and more than these {_MAX_LISTED}" if len(entries) > _MAX_LISTED else "")


async def _check_audit(rookery: Rookery) -> DoctorFinding:
    """Look whether each chain ends as it was last written: cheap, and no more than that."""
    loose = await rookery.access.audit.list_broken_ends()
    if not loose:
        return DoctorFinding(
            about="audit", grade="ok", says="each chain ends as it was last written (to read them all: rookery audit verify)"
        )
    told = "; ".join(f"workspace {each.workspace_id}: {each.reason}" for each in loose[:_MAX_LISTED])
    advice = "Somebody changed the record store by hand, or it was damaged: rookery audit verify says since where."
    return DoctorFinding(about="audit", grade="problem", says=f"the audit log is not what was written: {told}", advice=advice)


def _check_disk(rookery: Rookery) -> DoctorFinding:
    free, least = shutil.disk_usage(rookery.settings.data_dir).free // _MIB, rookery.settings.min_free_disk_mb
    if free < least:
        advice = "Writes are refused until there is more; see ROOKERY_MIN_FREE_DISK_MB."
        return DoctorFinding(about="disk", grade="problem", says=f"{free:,} MiB are free, {least:,} must be", advice=advice)
    return DoctorFinding(about="disk", grade="ok", says=f"{free:,} MiB are free")


def _check_connections(rookery: Rookery) -> list[DoctorFinding]:
    wanted = rookery.settings.max_connections
    possible = max_open_connections(wanted)
    if possible == wanted:
        return []
    says = f"the limit of open files leaves room for {possible:,} connections, not for ROOKERY_MAX_CONNECTIONS, {wanted:,}"
    advice = f"Raise the hard limit of open files (`ulimit -Hn`, or LimitNOFILE of systemd) to {wanted + RESERVED_FILE_DESCRIPTORS:,}."
    return [DoctorFinding(about="connections", grade="warning", says=says, advice=advice)]


async def _check_tool_servers(rookery: Rookery) -> list[DoctorFinding]:
    """Look for servers of workspaces that cannot be used, and for what somebody stopped and may have forgotten."""
    found = [
        DoctorFinding(
            about="tool servers", grade="warning", says=f"{server.id!r} of workspace {server.owner} cannot be used: {server.fault}"
        )
        for server in (await rookery.tools.workspace_servers.list_faulty())[:_MAX_LISTED]
    ]
    for stop in (await rookery.tools.kill_switch.list_stops())[:_MAX_LISTED]:
        what = "/".join(part for part in (stop.server_id, stop.tool) if part) or "all tools"
        whose = f"of workspace {stop.workspace_id}" if stop.workspace_id else "of all workspaces"
        says = f"{what} {whose} is stopped since {format_iso(stop.stopped_at)}" + (f": {stop.reason}" if stop.reason else "")
        found.append(DoctorFinding(about="tool servers", grade="warning", says=says, advice="To let it go on: rookery tools start"))
    return found


async def _check_webhooks(rookery: Rookery) -> list[DoctorFinding]:
    """Look for endpoints that are told nothing any more, and whose owner may not know."""
    found = list[DoctorFinding]()
    for each in await rookery.webhooks.endpoints.list_auto_disabled(limit=_MAX_LISTED):
        why = "it answered 410" if each.disabled_reason is DisabledReason.GONE else f"its last {each.failures:,} deliveries failed"
        since = "" if each.disabled_at is None else f" since {format_iso(each.disabled_at)}"
        host = urlsplit(each.url).netloc  # the rest may have a token in it
        is_sandboxed = each.workspace_id != each.public_workspace_id
        whose = f"the sandbox of workspace {each.public_workspace_id}" if is_sandboxed else f"workspace {each.public_workspace_id}"
        says = f"{each.id} of {whose}, to {host}, is disabled{since}: {why}"
        advice = "Once the receiver is mended: rookery webhooks enable WEBHOOK_ID, and then resend-failed; or remove it."
        if is_sandboxed:
            advice = "Once the receiver is mended, enable it over HTTP with a test key, or delete it."
        found.append(DoctorFinding(about="webhooks", grade="warning", says=says, advice=advice))
    return found


def _check_servers_file(rookery: Rookery) -> list[DoctorFinding]:
    path = rookery.settings.servers_file
    try:
        found = read_servers_file(path, os.environ)
    except InvalidServersFile as error:
        advice = "A running server keeps the last good one until this is mended."
        return [DoctorFinding(about="tool servers", grade="problem", says=f"{path}: {error}", advice=advice)]
    notes = [DoctorFinding(about="tool servers", grade="warning", says=f"{path}: {warning}") for warning in found.warnings]
    advice = "Mend its entry or install the program, then: rookery servers check"
    notes += [
        DoctorFinding(about="tool servers", grade="warning", says=f"{server.id!r} cannot start: {reason}", advice=advice)
        for server in found.servers.values()
        if server.enabled and server.fault is None and (reason := find_start_fault(server, os.environ)) is not None
    ]
    named = ", ".join(sorted(found.servers)) or "none but the built-in ones"
    return notes or [DoctorFinding(about="tool servers", grade="ok", says=f"{path}: {named}")]


async def _check_sealing_as_list(rookery: Rookery) -> list[DoctorFinding]:
    return [await _check_sealing(rookery)]


async def _check_audit_as_list(rookery: Rookery) -> list[DoctorFinding]:
    return [await _check_audit(rookery)]


_CHECKS: dict[str, Callable[[Rookery], Awaitable[list[DoctorFinding]]]] = {
    "memory": _check_memory,
    "traces": _check_pending_erasure,
    "jobs": _check_failed_jobs,
    "addresses": _check_client_addresses,
    "secrets": _check_sealing_as_list,
    "keys": _check_keys,
    "audit": _check_audit_as_list,
    "tool servers": _check_tool_servers,
    "webhooks": _check_webhooks,
}
"""What needs the record store, in the order in which it is shown."""
