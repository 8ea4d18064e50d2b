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

from rookery.access.models import Entry
from rookery.access.scopes import ALL
from rookery.engines.embedders import model_files
from rookery.kernel.clock import iso
from rookery.kernel.config import Settings
from rookery.kernel.errors import EngineUnavailable, RookeryError
from rookery.kernel.http.crowd import OTHER_FILES, room
from rookery.kernel.running_server import find_server
from rookery.kernel.sqlite import find_damage
from rookery.memory.maintenance.lifecycle import Wanted
from rookery.tools.servers.programs import why_not_startable
from rookery.tools.servers.servers_file import FileBroken, read_file
from rookery.webhooks.models import DisabledReason
from rookery.wiring import Rookery

_MIB = 1024 * 1024
_SHOWN = 10
_ENOUGH_CALLS = 100
_SOON = timedelta(days=7)
_IDLE = timedelta(days=90)

_FIRST_RUN = "first-run.json"
_RESTORE = "Restore a backup: rookery restore ARCHIVE"
_REBUILD = "rookery brain:reindex"
_REINDEX = "Stop the server, remove the file, and run: rookery brain:reindex"
_DATABASES = {
    "records.db": _RESTORE,
    "vectors.db": _REINDEX,
    "texts.db": _REINDEX,
    "counters.db": "Stop the server and remove the file: the windows of rate limits begin anew.",
}
"""The databases of the data folder, and what mends each."""

Grade = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        grade: A problem stops something from working; a warning is worth a look.
        advice: What to do; None where nothing is.
    """

    about: str
    grade: Grade
    says: str
    advice: str | None = None


async def examine(rookery: Rookery, *, deep: bool = False) -> list[Finding]:
    """
    Examine every part; a part that cannot be examined is itself a finding, and the others are examined all the same.

    Args:
        deep: Compare also how many memories the indexes hold with how many the records call indexed.
    """
    found = await _engines(rookery)
    if found[0].grade == "ok":
        for about, part in (_PARTS | ({"indexes": _indexes} if deep else {})).items():
            found += await _attempt(about, part, rookery)
    return [*found, await _server(rookery), _disk(rookery), *_connections(rookery), *_servers_file(rookery)]


async def _attempt(about: str, part: Callable[[Rookery], Awaitable[list[Finding]]], rookery: Rookery) -> list[Finding]:
    try:
        return await part(rookery)
    except RookeryError as error:
        return [Finding(about=about, grade="problem", says=error.message, advice="Mend what is named above, and run doctor again.")]
    except Exception as error:  # noqa: BLE001 - damaged data raises many classes; whatever it is, it is a finding
        says = f"cannot be examined: {type(error).__name__}: {error}"
        return [Finding(about=about, grade="problem", says=says, advice=_RESTORE)]


def examine_files(settings: Settings, *, deep: bool = False) -> list[Finding]:
    """
    Examine the files of the data folder, before anything opens them.

    Args:
        deep: Read every page of every database (`PRAGMA quick_check`).
    """
    folder, found = settings.data_dir, list[Finding]()
    if not folder.is_dir():
        return []
    if mode := folder.stat().st_mode & 0o077:
        says = f"others may open the data folder {folder} (mode {0o700 | mode:04o})"
        found.append(Finding(about="data folder", grade="warning", says=says, advice=f"chmod 700 {folder}"))
    if (folder / _FIRST_RUN).exists():
        says = f"{folder / _FIRST_RUN} still has the first keys in plain text"
        found.append(Finding(about="data folder", grade="warning", says=says, advice="Store them elsewhere and remove the file."))
    for name, mend in _DATABASES.items():
        path = folder / name
        if not path.is_file():
            continue
        reason = "it is empty" if path.stat().st_size == 0 else find_damage(path, deep=deep)
        if reason is not None:
            found.append(Finding(about="files", grade="problem", says=f"{path} is damaged: {reason}", advice=mend))
        elif deep:
            found.append(Finding(about="files", grade="ok", says=f"every page of {path} is sound"))
    for path in model_files.find_damaged_graphs(folder):
        says = f"{path} is damaged: it does not have the digest with which it was written"
        advice = "The next start writes the file anew; so does this command. Examine the disk."
        found.append(Finding(about="files", grade="warning", says=says, advice=advice))
    return found


def is_well(findings: Sequence[Finding]) -> bool:
    """Tell whether there is no problem; warnings are none."""
    return all(finding.grade != "problem" for finding in findings)


async def _server(rookery: Rookery) -> Finding:
    running = await asyncio.to_thread(find_server, rookery.settings.data_dir)
    says = f"runs at {running.url}, process {running.pid}" if running else "none answers on this data folder"
    return Finding(about="server", grade="ok", says=says)


async def _engines(rookery: Rookery) -> list[Finding]:
    found = list[Finding]()
    for name, probe in rookery.probes.items():
        if name == "servers":  # looked at below, with the reason
            continue
        try:
            state = await probe()
        except Exception as error:  # noqa: BLE001 - damaged files raise many classes; whatever it is, it is a finding
            reason = error.message if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
            found.append(
                Finding(about=name, grade="problem", says=reason, advice=f"See ROOKERY_{name.upper()} in docs/reference/settings.md.")
            )
        else:
            found.append(Finding(about=name, grade="ok" if state == "ok" else "warning", says=state))
    return found


async def _memory(rookery: Rookery) -> list[Finding]:
    lags = await _lags(rookery)
    if lags:
        return lags
    stale = await rookery.lifecycle.count(Wanted(is_stale=True))
    if not stale:
        return [Finding(about="memory", grade="ok", says="every memory is indexed as it is now")]
    says = f"{stale:,} memories are not indexed as they are now, by the embedder of now ({rookery.embedder.model})"
    advice = "New and changed ones a running server works off; cleaned ones, and all others: rookery brain:reindex --stale"
    return [Finding(about="memory", grade="warning", says=says, advice=advice)]


async def _indexes(rookery: Rookery) -> list[Finding]:
    """Compare what the indexes hold with the records, workspace by workspace."""
    compared = await rookery.memory.index_check.compare()
    if not compared.gaps:
        says = f"both hold the {compared.expected:,} memories that the records call indexed"
        return [Finding(about="indexes", grade="ok", says=says)]
    found = list[Finding]()
    for gap in compared.gaps[:_SHOWN]:
        name = "vector index" if gap.index == "vectors" else "full-text index"
        says = f"workspace {gap.workspace_id}: the {name} lacks at least {gap.missing:,} of {gap.expected:,} memories that it should find"
        advice = _REBUILD + (" --elastic-only" if gap.index == "texts" else "") + "; the server may run meanwhile."
        found.append(Finding(about="indexes", grade="problem", says=says, advice=advice))
    if len(compared.gaps) > _SHOWN:
        says = f"{len(compared.gaps) - _SHOWN:,} more indexes of workspaces lack memories"
        found.append(Finding(about="indexes", grade="problem", says=says, advice=_REBUILD))
    return found


async def _traces(rookery: Rookery) -> list[Finding]:
    """Look whether a command that was to leave no trace was ended before."""
    owed = await rookery.memory.tidying.erasing.owed()
    if not owed:
        return []
    says = f"files may still have {' and '.join(mark.name for mark in owed)}, since {iso(min(mark.at for mark in owed))}"
    return [Finding(about="memory", grade="warning", says=says, advice="It is ended by: rookery brain:reindex --stale")]


async def _lags(rookery: Rookery) -> list[Finding]:
    """Look for workspaces in which the vectors of a former embedder answer, or nobody's."""
    try:
        lags = await rookery.memory.rebuild.lags()
    except EngineUnavailable:  # told with the engines
        return []
    found = list[Finding]()
    for lag in lags[:_SHOWN]:
        behind = lag.behind
        done = f"{behind.total - behind.left:,} of {behind.total:,} memories have vectors of {rookery.embedder.model}"
        meanwhile = f"until all have, those of {behind.serving.model} answer"
        advice = "rookery brain:reindex --stale; it may be stopped and run again, and the server may run meanwhile."
        if not lag.is_answered:
            meanwhile = f"the embedder of the others ({behind.serving.model}) is not known any more, so recall goes by words"
            advice = f"Name it in ROOKERY_EMBEDDER_PREVIOUS for the time being, and in any case: {advice}"
        says = f"workspace {behind.workspace_id}: {done}; {meanwhile}"
        found.append(Finding(about="memory", grade="warning", says=says, advice=advice))
    return found


async def _failed_jobs(rookery: Rookery) -> list[Finding]:
    failed = await rookery.jobs.failed(_SHOWN + 1)
    if not failed:
        return [Finding(about="jobs", grade="ok", says="none has failed")]
    more = f" (the first {_SHOWN} are shown)" if len(failed) > _SHOWN else ""
    shown = "; ".join(
        f"{job.kind} {job.payload.get('memory_id', job.id)}: {reason.splitlines()[0][:120]}" for job, reason in failed[:_SHOWN]
    )
    advice = "They are tried again daily, and when an engine recovers."
    return [Finding(about="jobs", grade="warning", says=f"failed{more}: {shown}", advice=advice)]


async def _addresses(rookery: Rookery) -> list[Finding]:
    seen = await rookery.access.usage.seen()
    if seen.calls < _ENOUGH_CALLS or seen.keys < 2 or seen.addresses > 1:
        return []
    says = f"{seen.calls:,} calls of {seen.keys} keys all came from {seen.one}: address restrictions cannot tell them apart"
    return [Finding(about="addresses", grade="warning", says=says, advice="Behind a proxy, name it in ROOKERY_TRUSTED_PROXIES.")]


async def _secrets(rookery: Rookery) -> Finding:
    """Look whether what is sealed can be opened, and whether others may read the key."""
    path, is_set = rookery.settings.data_dir / "secret.key", rookery.settings.secret_key is not None
    try:
        found = await rookery.sealing.rotation.inspect()
    except RookeryError as error:
        return Finding(about="secrets", grade="problem", says=error.message)
    if found.state is None:
        return Finding(about="secrets", grade="ok", says="nothing was sealed yet; the first start makes the key")
    if found.missing or found.unreadable:
        missing = f", for which these keys are missing: {', '.join(found.missing)}" if found.missing else ": they are damaged"
        says = f"at least {found.unreadable:,} of {found.sealed:,} sealed texts cannot be opened{missing}"
        advice = "Bring the key back, or name it in ROOKERY_SECRET_KEY_PREVIOUS; if it is lost: rookery secrets rotate --lost"
        return Finding(about="secrets", grade="problem", says=says, advice=advice)
    if found.file_mode is not None and found.file_mode & 0o077:
        says = f"others may read {path} (mode {found.file_mode:04o})"
        return Finding(about="secrets", grade="problem", says=says, advice=f"chmod 600 {path}, then: rookery secrets rotate")
    if found.is_due:
        says = "the secret key was changed, and not everything is sealed by the new one yet"
        return Finding(about="secrets", grade="warning", says=says, advice="rookery secrets rotate ends the change.")
    where = "ROOKERY_SECRET_KEY" if is_set else str(path)
    return Finding(about="secrets", grade="ok", says=f"{where} opens what is sealed ({found.sealed:,} texts)")


async def _keys(rookery: Rookery) -> list[Finding]:
    """Look for keys that somebody will miss soon, and for all-powerful ones that nobody would."""
    rings = ("keys", rookery.access.api_keys), ("agent-keys", rookery.access.agent_keys)
    found = list[Finding]()
    for group, ring in rings:
        expiring = await ring.expiring(within=_SOON, limit=_SHOWN + 1)
        if expiring:
            told = _named(expiring, lambda entry: f"at {iso(entry.key.expires_at)}" if entry.key.expires_at else "")
            advice = f"rookery {group} extend KEY_ID --expires-at 90d, or --never"
            says = f"active, but will expire within {_SOON.days} days: {told}"
            found.append(Finding(about="keys", grade="warning", says=says, advice=advice))
        idle = await ring.idle(ALL, unused_for=_IDLE, limit=_SHOWN + 1)
        if idle:
            told = _named(idle, lambda entry: f"last used {iso(entry.use.last_used_at)}" if entry.use.last_used_at else "never used")
            advice = f"If nobody needs it: rookery {group} delete KEY_ID; to be safe first: rookery {group} suspend KEY_ID"
            says = f"may do everything, unused for {_IDLE.days} days: {told}"
            found.append(Finding(about="keys", grade="warning", says=says, advice=advice))
    calm = f"none expires within {_SOON.days} days, and none that may do everything is unused for {_IDLE.days}"
    return found or [Finding(about="keys", grade="ok", says=calm)]


def _named(entries: Sequence[Entry], what: Callable[[Entry], str]) -> str:
    named = [f"{each.key.name!r} ({each.key.id}, workspace {each.key.workspace_id}, {what(each)})" for each in entries[:_SHOWN]]
    return "; ".join(named) + (f"; and more than these {_SHOWN}" if len(entries) > _SHOWN else "")


async def _audit(rookery: Rookery) -> Finding:
    """Look whether each chain ends as it was last written: cheap, and no more than that."""
    loose = await rookery.access.audit.loose_ends()
    if not loose:
        return Finding(about="audit", grade="ok", says="each chain ends as it was last written (to read them all: rookery audit verify)")
    told = "; ".join(f"workspace {each.workspace_id}: {each.reason}" for each in loose[:_SHOWN])
    advice = "Somebody changed the record store by hand, or it was damaged: rookery audit verify says since where."
    return Finding(about="audit", grade="problem", says=f"the audit log is not what was written: {told}", advice=advice)


def _disk(rookery: Rookery) -> Finding:
    free, least = shutil.disk_usage(rookery.settings.data_dir).free // _MIB, rookery.settings.min_free_disk_mb
    if free < least:
        advice = "Writes are refused until there is more; see ROOKERY_MIN_FREE_DISK_MB."
        return Finding(about="disk", grade="problem", says=f"{free:,} MiB are free, {least:,} must be", advice=advice)
    return Finding(about="disk", grade="ok", says=f"{free:,} MiB are free")


def _connections(rookery: Rookery) -> list[Finding]:
    wanted = rookery.settings.max_connections
    possible = room(wanted)
    if possible == wanted:
        return []
    says = f"the limit of open files leaves room for {possible:,} connections, not for ROOKERY_MAX_CONNECTIONS, {wanted:,}"
    advice = f"Raise the hard limit of open files (`ulimit -Hn`, or LimitNOFILE of systemd) to {wanted + OTHER_FILES:,}."
    return [Finding(about="connections", grade="warning", says=says, advice=advice)]


async def _tool_servers(rookery: Rookery) -> list[Finding]:
    """Look for servers of workspaces that cannot be used, and for what somebody stopped and may have forgotten."""
    found = [
        Finding(about="tool servers", grade="warning", says=f"{server.id!r} of workspace {server.owner} cannot be used: {server.fault}")
        for server in (await rookery.tools.owned.faults())[:_SHOWN]
    ]
    for stop in (await rookery.tools.brakes.stops())[:_SHOWN]:
        what = "/".join(part for part in (stop.server_id, stop.tool) if part) or "all tools"
        whose = f"of workspace {stop.workspace_id}" if stop.workspace_id else "of all workspaces"
        says = f"{what} {whose} is stopped since {iso(stop.stopped_at)}" + (f": {stop.reason}" if stop.reason else "")
        found.append(Finding(about="tool servers", grade="warning", says=says, advice="To let it go on: rookery tools start"))
    return found


async def _webhooks(rookery: Rookery) -> list[Finding]:
    """Look for endpoints that are told nothing any more, and whose owner may not know."""
    found = list[Finding]()
    for each in await rookery.webhooks.endpoints.given_up(limit=_SHOWN):
        why = "it answered 410" if each.disabled_reason is DisabledReason.GONE else f"its last {each.failures:,} deliveries failed"
        since = "" if each.disabled_at is None else f" since {iso(each.disabled_at)}"
        host = urlsplit(each.url).netloc  # the rest may have a token in it
        is_sandboxed = each.workspace_id != each.shown_workspace_id
        whose = f"the sandbox of workspace {each.shown_workspace_id}" if is_sandboxed else f"workspace {each.shown_workspace_id}"
        says = f"{each.id} of {whose}, to {host}, is disabled{since}: {why}"
        advice = "Once the receiver is mended: rookery webhooks enable WEBHOOK_ID, and then resend-failed; or remove it."
        if is_sandboxed:
            advice = "Once the receiver is mended, enable it over HTTP with a test key, or delete it."
        found.append(Finding(about="webhooks", grade="warning", says=says, advice=advice))
    return found


def _servers_file(rookery: Rookery) -> list[Finding]:
    path = rookery.settings.servers_file
    try:
        found = read_file(path, os.environ)
    except FileBroken as error:
        advice = "A running server keeps the last good one until this is mended."
        return [Finding(about="tool servers", grade="problem", says=f"{path}: {error}", advice=advice)]
    notes = [Finding(about="tool servers", grade="warning", says=f"{path}: {warning}") for warning in found.warnings]
    advice = "Mend its entry or install the program, then: rookery servers check"
    notes += [
        Finding(about="tool servers", grade="warning", says=f"{server.id!r} cannot start: {reason}", advice=advice)
        for server in found.servers.values()
        if server.enabled and server.fault is None and (reason := why_not_startable(server, os.environ)) is not None
    ]
    named = ", ".join(sorted(found.servers)) or "none but the built-in ones"
    return notes or [Finding(about="tool servers", grade="ok", says=f"{path}: {named}")]


async def _only_secrets(rookery: Rookery) -> list[Finding]:
    return [await _secrets(rookery)]


async def _only_audit(rookery: Rookery) -> list[Finding]:
    return [await _audit(rookery)]


_PARTS: dict[str, Callable[[Rookery], Awaitable[list[Finding]]]] = {
    "memory": _memory,
    "traces": _traces,
    "jobs": _failed_jobs,
    "addresses": _addresses,
    "secrets": _only_secrets,
    "keys": _keys,
    "audit": _only_audit,
    "tool servers": _tool_servers,
    "webhooks": _webhooks,
}
"""What needs the record store, in the order in which it is shown."""
