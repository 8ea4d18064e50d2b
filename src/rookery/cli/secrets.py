"""`rookery secrets`: the key that encrypts confidential values (D-07)."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol

import typer

from rookery.access.commands import command_context, output
from rookery.kernel.sealing import RotationResult, SealingReport
from rookery.wiring import Rookery

app = typer.Typer(name="secrets", help="Manage the key that encrypts confidential values.", no_args_is_help=True)


class SecretsCommandContext(Protocol):
    """The interface of `typer.Context.obj` that these commands use."""

    def open(self) -> AbstractAsyncContextManager[Rookery]:
        """Open the platform on its store."""
        ...


@app.command("rotate")
def rotate_secrets(
    context: typer.Context,
    *,
    delete_lost: Annotated[bool, typer.Option("--lost", help="Delete the values that only a lost key can decrypt.")] = False,
    yes: command_context.YesOption = False,
    dry_run: command_context.DryRunOption = False,
    as_json: command_context.JsonOption = False,
) -> None:
    """Encrypt everything with a new secret key, or with ROOKERY_SECRET_KEY if it is set, and remove the old key."""
    if dry_run:
        report = asyncio.run(_inspect_secrets(context.obj))
        fields = {
            "key_id": report.state.key_id if report.state else None,
            "sealed": report.sealed_count,
            "missing": list(report.missing_keys),
            "unreadable": report.unreadable_count,
            "dry_run": True,
        }
        output.print_json(fields) if as_json else output.print_fields(fields)
        return
    if delete_lost:
        command_context.confirm("This deletes the values that only the lost key can decrypt.", yes=yes)
    done = asyncio.run(_rotate_secrets(context.obj, delete_lost=delete_lost))
    if as_json:
        output.print_json(
            {"key_id": done.key_id, "changed": done.is_changed, "resealed": done.resealed_count, "deleted": done.deleted_count}
        )
    elif done.is_changed:
        deleted = f", {done.deleted_count:,} were deleted" if delete_lost else ""
        print(f"The secret key is {done.key_id} now; {done.resealed_count:,} values were re-encrypted{deleted}.")  # noqa: T201 - the output
    else:
        print(  # noqa: T201 - the output of the command
            "ROOKERY_SECRET_KEY is the current key already. To change it, set it to a new key, and set ROOKERY_SECRET_KEY_PREVIOUS "
            "to the current one."
        )


async def _inspect_secrets(context: SecretsCommandContext) -> SealingReport:
    async with context.open() as rookery:
        return await rookery.sealing.rotation.inspect_columns()


async def _rotate_secrets(context: SecretsCommandContext, *, delete_lost: bool) -> RotationResult:
    async with context.open() as rookery:
        return await rookery.sealing.rotation.rotate(delete_unreadable=delete_lost)
