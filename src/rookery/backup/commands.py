"""`rookery backup` and `rookery restore`."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rookery.access.commands.printing import print_json, print_one, say
from rookery.access.commands.reading import usage_error
from rookery.access.commands.terminal import Json
from rookery.backup import making, restoring
from rookery.backup.archive import ENDINGS
from rookery.backup.archive import Progress as Told
from rookery.backup.making import Made, Order
from rookery.backup.manifest import Manifest
from rookery.backup.restoring import Restored
from rookery.kernel.config import Settings
from rookery.kernel.sealing import KeySource

_MIB = 1024 * 1024
_DEFAULT_ENDING = ".tar.zst"
"""Added to a name that has none of the endings."""
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

_ON_POSTGRESQL = (
    "The records are on a PostgreSQL, which is saved by its own means: pg_dump --format=custom --file=records.dump DATABASE. "
    "After it, say --without-records to save the indexes and servers.json of the data folder."
)
_WITHOUT_RECORDS = (
    "There are no records in this backup: bring them back by pg_restore, and then the indexes to what they say: rookery brain:reindex"
)


class Context(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...


def backup(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            help=f"A new file, {', '.join(ENDINGS)}; or a folder, by default this one, in which it is named after the time.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option(help="The same as FILE.", show_default=False)] = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Delete all but the newest so many backups in that folder.", show_default=False)
    ] = None,
    with_secret_key: Annotated[bool, typer.Option("--with-secret-key", help="Save secret.key too, which opens what is sealed.")] = False,
    without_records: Annotated[bool, typer.Option("--without-records", help="The records are on a PostgreSQL and saved there.")] = False,
    as_json: Json = False,
) -> None:
    """Save everything in one file, while the server runs."""
    if file is not None and out is not None:
        usage_error("Name the file once: as FILE or with --out.")
    target = file or out or Path()
    settings = _settings(context)
    is_elsewhere = settings.database_url.reveal() != "embedded:"
    if is_elsewhere and not without_records:
        usage_error(_ON_POSTGRESQL)
    if without_records and not is_elsewhere:
        usage_error("--without-records is for records on a PostgreSQL; these are in the data folder.")
    if not target.is_dir():
        if keep is not None:
            usage_error("--keep is for a folder: name one instead of a file.")
        if not target.name.endswith(ENDINGS):
            target = target.with_name(f"{target.name}{_DEFAULT_ENDING}")
        if not target.absolute().parent.is_dir():
            usage_error(f"There is no folder {target.parent}.")
    order = Order(folder=settings.data_dir, out=target, with_records=not is_elsewhere, with_secret_key=with_secret_key, keep=keep)
    with _bar("Backing up", making.total(order) if settings.data_dir.is_dir() else 0) as progress:
        made = making.make(order, progress=progress)
    _show_made(made, settings, as_json=as_json)


def restore(
    context: typer.Context,
    *,
    archive: Annotated[Path, typer.Argument(help="The backup.")],
    data_dir: Annotated[Path | None, typer.Option(help="The empty folder to restore into.", show_default=False)] = None,
    verify_only: Annotated[bool, typer.Option("--verify-only", help="Only read it, from end to end.")] = False,
    sha256: Annotated[str | None, typer.Option(help="What the file must have, as `backup` said it.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Bring a backup back into an empty folder; nothing is written before all of it was checked."""
    settings = _settings(context)
    if sha256 is not None and _SHA256.fullmatch(sha256) is None:
        usage_error("--sha256 takes 64 hexadecimal digits.")
    if not archive.exists():
        usage_error(f"There is no file {archive}.")
    folder = (data_dir or settings.data_dir).expanduser().absolute()
    with _bar("Checking" if verify_only else "Restoring", None) as progress:
        if verify_only:
            restored = restoring.verify(archive, progress=progress, sha256=sha256)
        else:
            restored = restoring.restore(archive, folder, progress=progress, sha256=sha256)
    _show_restored(restored, settings, as_json=as_json)


def _show_made(made: Made, settings: Settings, *, as_json: bool) -> None:
    needs = _needed_key(made.manifest, settings, made.manifest.has_secret_key)
    if as_json:
        left = dict(made.content.left_out)
        fields = {"file": str(made.path), "size": made.size, "sha256": made.sha256, **_fields(made.manifest), "left_out": left}
        print_json({**fields, "dropped": [str(each) for each in made.dropped]})
    else:
        print_one({"file": str(made.path), "size": f"{made.size:,} bytes", "sha256": made.sha256, **_told(made.manifest)})
    if made.manifest.has_secret_key:
        say("secret.key is in it: whoever has this file can read what is sealed.")
    elif needs is not None:
        say(f"The secret key {needs} is not in it, and nothing sealed can be read without: keep it too, apart from this file.")
    for each in made.dropped:
        say(f"{each} was deleted.")


def _show_restored(restored: Restored, settings: Settings, *, as_json: bool) -> None:
    manifest, folder = restored.manifest, restored.folder
    needs = _needed_key(manifest, settings, manifest.has_secret_key)
    if as_json:
        print_json({"data_dir": None if folder is None else str(folder), "whole": True, **_fields(manifest), "needs_secret_key": needs})
    else:
        print_one({**({} if folder is None else {"restored into": str(folder)}), "whole": True, **_told(manifest)})
    if folder is None:
        return
    if needs is not None:
        say(f"Before the start bring back the secret key {needs}: as {folder / 'secret.key'} (chmod 600), or in ROOKERY_SECRET_KEY.")
    say(_WITHOUT_RECORDS if manifest.revision is None else f"To look it over: rookery --data-dir {folder} doctor")


def _needed_key(manifest: Manifest, settings: Settings, is_inside: bool) -> str | None:  # noqa: FBT001 - ours alone
    """Return the id of the key that whoever restores it must have besides; None: none."""
    if manifest.secret_key_id is None or is_inside:
        return None
    given = KeySource(settings.data_dir / "none", given=settings.secret_key, previous=settings.secret_key_previous).read()
    return None if manifest.secret_key_id in given else manifest.secret_key_id


def _fields(manifest: Manifest) -> dict[str, object]:
    return {
        "made_at": manifest.made_at,
        "version": manifest.version,
        "revision": manifest.revision,
        "secret_key_id": manifest.secret_key_id,
        "has_secret_key": manifest.has_secret_key,
        "files": [{"name": each.name, "size": each.size, "sha256": each.sha256} for each in manifest.files],
    }


def _told(manifest: Manifest) -> dict[str, object]:
    return {"made at": manifest.made_at, "by version": manifest.version, "holds": ", ".join(each.name for each in manifest.files)}


@contextmanager
def _bar(what: str, total: int | None) -> Generator[Told]:
    """Show a progress bar on a terminal, and nothing in a pipe (D-04)."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _nothing
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task, drawn = shown.add_task(what, total=total), 0

        def move(done: int) -> None:
            nonlocal drawn
            if done - drawn >= _MIB or done < drawn:
                drawn = done
                shown.update(task, completed=done)

        yield move


def _nothing(done: int) -> None:
    """Show nothing."""


def _settings(context: typer.Context) -> Settings:
    return cast("Context", context.obj).settings
