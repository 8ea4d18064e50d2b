"""`rookery doctor`: what is wrong with an installation, in words, with what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rookery.kernel.errors import RookeryError
from rookery.memory.lifecycle import Wanted
from rookery.tools.servers_file import FileBroken, read_file
from rookery.wiring import Rookery

_MIB = 1024 * 1024
_SHOWN = 10
_ENOUGH_CALLS = 100

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


async def examine(rookery: Rookery) -> list[Finding]:
    """Look at everything; what cannot be looked at is itself a finding."""
    found = await _engines(rookery)
    if found[0].grade == "ok":
        found += await _memory(rookery)
        found += await _failed_jobs(rookery)
        found += await _addresses(rookery)
    return [*found, _disk(rookery), *_servers_file(rookery)]


def is_well(findings: Sequence[Finding]) -> bool:
    """Tell whether there is no problem; warnings are none."""
    return all(finding.grade != "problem" for finding in findings)


async def _engines(rookery: Rookery) -> list[Finding]:
    found = list[Finding]()
    for name, probe in rookery.probes.items():
        if name == "servers":  # looked at below, with the reason
            continue
        try:
            state = await probe()
        except RookeryError as error:
            found.append(
                Finding(
                    about=name, grade="problem", says=error.message, advice=f"See ROOKERY_{name.upper()} in docs/reference/settings.md."
                )
            )
        else:
            found.append(Finding(about=name, grade="ok" if state == "ok" else "warning", says=state))
    return found


async def _memory(rookery: Rookery) -> list[Finding]:
    stale = await rookery.lifecycle.count(Wanted(is_stale=True))
    if not stale:
        return [Finding(about="memory", grade="ok", says="every memory is indexed as it is now")]
    says = f"{stale:,} memories are not indexed as they are now, by the embedder of now ({rookery.embedder.model})"
    return [
        Finding(about="memory", grade="warning", says=says, advice="A running server works them off; else: rookery brain:reindex --stale")
    ]


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


def _disk(rookery: Rookery) -> Finding:
    free, least = shutil.disk_usage(rookery.settings.data_dir).free // _MIB, rookery.settings.min_free_disk_mb
    if free < least:
        advice = "Writes are refused until there is more; see ROOKERY_MIN_FREE_DISK_MB."
        return Finding(about="disk", grade="problem", says=f"{free:,} MiB are free, {least:,} must be", advice=advice)
    return Finding(about="disk", grade="ok", says=f"{free:,} MiB are free")


def _servers_file(rookery: Rookery) -> list[Finding]:
    path = rookery.settings.servers_file
    try:
        found = read_file(path, os.environ)
    except FileBroken as error:
        advice = "A running server keeps the last good one until this is mended."
        return [Finding(about="tool servers", grade="problem", says=f"{path}: {error}", advice=advice)]
    notes = [Finding(about="tool servers", grade="warning", says=f"{path}: {warning}") for warning in found.warnings]
    named = ", ".join(sorted(found.servers)) or "none but the built-in ones"
    return notes or [Finding(about="tool servers", grade="ok", says=f"{path}: {named}")]
