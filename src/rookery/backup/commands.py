"""`rookery backup` and `rookery restore`."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.operator import get_operator
from rookery.access.operator_audit import PlatformAction, write_entries
from rookery.backup import creation, restoration
from rookery.backup.archive import FILE_SUFFIXES, ProgressCallback
from rookery.backup.creation import BackupRequest, BackupResult
from rookery.backup.manifest import Manifest
from rookery.backup.restoration import RestoreResult
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import SETTINGS_FILE
from rookery.kernel.db import Tx
from rookery.kernel.sealing import KeySource
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption, raise_usage_error
from rookery.terminal.output import print_fields, print_json, print_notice

_MIB = 1024 * 1024
_DEFAULT_SUFFIX = ".tar.zst"
"""The ending added to a file name without one."""
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

_NO_RECORDS_MESSAGE = "This backup has no records. Restore them with pg_restore, then update the indexes: rookery brain:reindex"
_FILES_OF_SETTINGS = {"vectors": "vectors.db", "texts": "texts.db"}


def backup(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            help=f"A new file ending in {', '.join(FILE_SUFFIXES)}, or a folder for a file named after the time; by default this folder.",
            show_default=False,
        ),
    ] = None,
    *,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Keep only this number of the newest backups in the folder.", show_default=False)
    ] = None,
    with_secret_key: Annotated[
        bool, typer.Option("--with-secret-key", help="Also save secret.key, which decrypts the encrypted values.")
    ] = False,
    without_records: Annotated[
        bool, typer.Option("--without-records", help="Skip the records, which are in PostgreSQL and which you save there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Save everything in one file, while the server runs."""
    target = file or Path()
    settings = get_settings(context)
    is_elsewhere = settings.database_url.reveal() != "embedded:"
    if without_records and not is_elsewhere:
        raise_usage_error("--without-records needs records in PostgreSQL; these are in the data folder.")
    if not target.is_dir():
        if keep is not None:
            raise_usage_error("--keep needs a folder in place of a file.")
        if not target.name.endswith(FILE_SUFFIXES):
            target = target.with_name(f"{target.name}{_DEFAULT_SUFFIX}")
        if not target.absolute().parent.is_dir():
            raise_usage_error(f"The folder {target.parent} does not exist. Create it first.")
    request = BackupRequest(
        folder=settings.data_dir,
        out=target,
        with_records=not without_records,
        database=settings.database_url if is_elsewhere else None,
        unused_indexes=frozenset(_list_unused_indexes(settings)),
        with_secret_key=with_secret_key,
        keep=keep,
    )
    with _show_byte_progress("Backing up", None if is_elsewhere else creation.estimate_bytes(request)) as progress:
        result = creation.create_backup(request, progress=progress)
    _print_backup(result, settings, as_json=as_json)
    fields = {"size": result.size, "sha256": result.sha256, "with_records": not without_records, "with_secret_key": with_secret_key}
    _record(settings, settings.data_dir, "backup.created", result.path, fields)


def restore(
    context: typer.Context,
    *,
    archive: Annotated[Path, typer.Argument(help="The backup file.")],
    data_dir: Annotated[Path | None, typer.Option(help="The empty folder to restore into.", show_default=False)] = None,
    verify_only: Annotated[bool, typer.Option("--verify-only", help="Only check the whole backup; write nothing.")] = False,
    sha256: Annotated[str | None, typer.Option(help="The SHA-256 of the file that `backup` printed.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty folder. The whole backup is checked before anything is written."""
    settings = get_settings(context)
    if sha256 is not None and _SHA256.fullmatch(sha256) is None:
        raise_usage_error("--sha256 takes 64 hexadecimal digits.")
    if not archive.exists():
        raise_usage_error(f"The file {archive} does not exist.")
    folder = (data_dir or settings.data_dir).expanduser().absolute()
    with _show_byte_progress("Checking" if verify_only else "Restoring", None) as progress:
        if verify_only:
            result = restoration.verify_backup(archive, progress=progress, sha256=sha256)
        else:
            database = None if settings.database_url.reveal() == "embedded:" else settings.database_url
            result = restoration.restore_backup(archive, folder, progress=progress, sha256=sha256, database=database)
    _print_restore(result, settings, as_json=as_json)
    if result.folder is not None and result.manifest.revision is not None:
        _record(settings, result.folder, "backup.restored", archive, {"made_at": result.manifest.made_at})


def _record(settings: Settings, folder: Path, action: PlatformAction, file: Path, fields: Mapping[str, object]) -> None:
    """Add an audit entry. A backup or a restore that is complete does not fail because the audit log cannot be written."""

    def write(audit: AuditLog, tx: Tx) -> None:
        subject = AuditSubject(kind="backup", id=file.name, name=file.name)
        audit.record(tx, get_operator(), PLATFORM_CHAIN, action, subject, before=None, after=fields)

    reason = write_entries(folder, settings.database_url, write)
    if reason is not None:
        print_notice(f"The audit log has no entry of it: {reason}")


def _print_backup(result: BackupResult, settings: Settings, *, as_json: bool) -> None:
    missing_key_id = _required_key_id(result.manifest, settings, result.manifest.has_secret_key)
    if as_json:
        exclusion_reasons = dict(result.content.excluded)
        fields = {
            "file": str(result.path),
            "size": result.size,
            "sha256": result.sha256,
            **_manifest_to_json(result.manifest),
            "left_out": exclusion_reasons,
        }
        print_json({**fields, "dropped": [str(file) for file in result.deleted_files]})
    else:
        print_fields(
            {"file": str(result.path), "size": f"{result.size:,} bytes", "sha256": result.sha256, **_manifest_to_text(result.manifest)}
        )
    if result.manifest.has_secret_key:
        print_notice("The backup contains secret.key, so it is enough to decrypt the encrypted values. Keep it safe.")
    elif missing_key_id is not None:
        print_notice(
            f"The backup does not contain the secret key {missing_key_id}, which its encrypted values need. Store the key elsewhere."
        )
    if SETTINGS_FILE in result.content.excluded:
        print_notice(f"The backup does not contain {settings.data_dir / SETTINGS_FILE}, which has your settings. Keep a copy elsewhere.")
    for file in result.deleted_files:
        print_notice(f"{file} was deleted.")


def _print_restore(result: RestoreResult, settings: Settings, *, as_json: bool) -> None:
    manifest, folder = result.manifest, result.folder
    missing_key_id = _required_key_id(manifest, settings, manifest.has_secret_key)
    if as_json:
        print_json(
            {
                "data_dir": None if folder is None else str(folder),
                "records_in": None
                if folder is None or manifest.revision is None
                else "postgresql"
                if result.is_in_database
                else "data_dir",
                "whole": True,
                **_manifest_to_json(manifest),
                "needs_secret_key": missing_key_id,
            }
        )
    else:
        places = (
            {} if folder is None else {"restored into": f"{folder}, and the records into PostgreSQL" if result.is_in_database else folder}
        )
        print_fields({**places, "intact": True, **_manifest_to_text(manifest)})
    if folder is None:
        return
    if missing_key_id is not None:
        key_file = "" if result.is_in_database else f"as {folder / 'secret.key'} (chmod 600), or "
        print_notice(f"Before the start, restore the secret key {missing_key_id}: {key_file}in ROOKERY_SECRET_KEY.")
    if not (folder / SETTINGS_FILE).exists():
        print_notice(
            f"No backup has settings, such as those of mail, language models and allowed addresses. If you had a {SETTINGS_FILE},"
            f" copy it to {folder / SETTINGS_FILE}."
        )
    if manifest.revision is not None:
        _print_index_steps(manifest, settings, folder)
    print_notice(_NO_RECORDS_MESSAGE if manifest.revision is None else f"To check the result: rookery --data-dir {folder} doctor")


def _list_unused_indexes(settings: Settings) -> list[str]:
    """Return the files of indexes that the settings keep in a server."""
    return [file for name, file in _FILES_OF_SETTINGS.items() if getattr(settings, name).reveal() != "embedded:"]


def _print_index_steps(manifest: Manifest, settings: Settings, folder: Path) -> None:
    """Print the commands that fill the indexes of the settings that are not in the folder."""
    names, unused = {file.name for file in manifest.files}, set(_list_unused_indexes(settings))
    missing = [f"ROOKERY_{name.upper()}" for name, file in _FILES_OF_SETTINGS.items() if file not in names]
    if missing:
        print_notice(f"The backup has no index for {' and '.join(missing)}. Fill it: rookery --data-dir {folder} brain:reindex")
    for name, file in _FILES_OF_SETTINGS.items():
        if file in names & unused:
            variable = f"ROOKERY_{name.upper()}"
            print_notice(
                f"{variable} names a server, and the backup has {file}. Before the start, copy it there: "
                f"{variable}=embedded: rookery --data-dir {folder} move-engine {name} --to ADDRESS"
            )


def _required_key_id(manifest: Manifest, settings: Settings, is_included: bool) -> str | None:  # noqa: FBT001 - a private function
    """Return the id of the key that a restore needs besides the backup and the settings; None if it needs none."""
    if manifest.secret_key_id is None or is_included:
        return None
    available = KeySource(settings.data_dir / "none", configured=settings.secret_key, previous=settings.secret_key_previous).load_keys()
    return None if manifest.secret_key_id in available else manifest.secret_key_id


def _manifest_to_json(manifest: Manifest) -> dict[str, object]:
    return {
        "made_at": manifest.made_at,
        "version": manifest.version,
        "revision": manifest.revision,
        "secret_key_id": manifest.secret_key_id,
        "has_secret_key": manifest.has_secret_key,
        "files": [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in manifest.files],
    }


def _manifest_to_text(manifest: Manifest) -> dict[str, object]:
    return {
        "created at": manifest.made_at,
        "Rookery version": manifest.version,
        "contains": ", ".join(file.name for file in manifest.files),
    }


@contextmanager
def _show_byte_progress(title: str, total: int | None) -> Generator[ProgressCallback]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _ignore_progress
        return
    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, reported_bytes = bar.add_task(title, total=total), 0

        def update(done: int) -> None:
            nonlocal reported_bytes
            if done - reported_bytes >= _MIB or done < reported_bytes:
                reported_bytes = done
                bar.update(task, completed=done)

        yield update


def _ignore_progress(done: int) -> None:
    """Show nothing."""
