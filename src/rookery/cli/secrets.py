"""`rookery secrets`: the key that seals secrets (D-07)."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol

import typer

from rookery.access.commands import command_context, output
from rookery.kernel.sealing import RotationResult, SealingReport
from rookery.wiring import Rookery

app = typer.Typer(name="secrets", help="Look after the key that seals secrets.", no_args_is_help=True)


class SecretsCommandContext(Protocol):
    """What the command line passes to every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Rookery]:
        """Open the platform on its store."""
        ...


@app.command("rotate")
def rotate_secrets(
    context: typer.Context,
    *,
    lost: Annotated[bool, typer.Option("--lost", help="The key is gone: delete what only it can open.")] = False,
    yes: command_context.YesOption = False,
    dry_run: command_context.DryRunOption = False,
    as_json: command_context.JsonOption = False,
) -> None:
    """Seal everything by a new secret key, ROOKERY_SECRET_KEY if that is set, and keep nothing of the old one."""
    if dry_run:
        found = asyncio.run(_inspect_secrets(context.obj))
        shown = {
            "key_id": found.state.key_id if found.state else None,
            "sealed": found.sealed_count,
            "missing": list(found.missing_keys),
            "unreadable": found.unreadable_count,
            "dry_run": True,
        }
        output.print_json(shown) if as_json else output.print_fields(shown)
        return
    if lost:
        command_context.confirm("This deletes what only the lost key can open.", yes=yes)
    done = asyncio.run(_rotate_secrets(context.obj, lost=lost))
    if as_json:
        output.print_json(
            {"key_id": done.key_id, "changed": done.is_changed, "resealed": done.resealed_count, "deleted": done.deleted_count}
        )
    elif done.is_changed:
        deleted = f", {done.deleted_count:,} were deleted" if lost else ""
        print(f"The secret key is {done.key_id} now; {done.resealed_count:,} texts were sealed anew{deleted}.")  # noqa: T201 - the command's answer
    else:
        print(  # noqa: T201 - the command's answer
            "ROOKERY_SECRET_KEY seals everything already. To change it, set a new one, and this one as ROOKERY_SECRET_KEY_PREVIOUS."
        )


async def _inspect_secrets(opens: SecretsCommandContext) -> SealingReport:
    async with opens.open() as rookery:
        return await rookery.sealing.rotation.inspect_columns()


async def _rotate_secrets(opens: SecretsCommandContext, *, lost: bool) -> RotationResult:
    async with opens.open() as rookery:
        return await rookery.sealing.rotation.rotate(delete_unreadable=lost)
