"""`rookery secrets`: the key that encrypts confidential values."""

from __future__ import annotations

from typing import Annotated

import typer

from rookery.access.audit_log import PLATFORM_CHAIN, AuditSubject
from rookery.access.operator import get_operator
from rookery.kernel.sealing import RotationResult, SealingReport
from rookery.kernel.sentences import format_count
from rookery.terminal.context import run
from rookery.terminal.options import DryRunOption, JsonOption, YesOption, confirm
from rookery.terminal.output import print_json, print_record
from rookery.wiring import Rookery

app = typer.Typer(no_args_is_help=True)


@app.command("rotate")
def rotate_secrets(
    context: typer.Context,
    *,
    delete_lost: Annotated[bool, typer.Option("--lost", help="Delete the values that only a lost key can decrypt.")] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Encrypt everything with a new secret key, or with ROOKERY_SECRET_KEY if it is set, and remove the old key."""
    if dry_run:
        report = run(context, _inspect_secrets)
        fields = {
            "key_id": report.state.key_id if report.state else None,
            "sealed": report.sealed_count,
            "missing": list(report.missing_keys),
            "unreadable": report.unreadable_count,
            "dry_run": True,
        }
        print_record(fields, as_json=as_json)
        return
    if delete_lost:
        confirm("This deletes the values that only the lost key can decrypt.", yes=yes)

    async def rotate(rookery: Rookery) -> RotationResult:
        before = (await rookery.sealing.rotation.inspect_columns()).state
        done = await rookery.sealing.rotation.rotate(delete_unreadable=delete_lost)
        if done.is_changed or done.deleted_count:
            fields = {"resealed": done.resealed_count, "deleted": done.deleted_count, "before": before and before.key_id}
            subject = AuditSubject(kind="secret_key", id=done.key_id, name=done.key_id)
            await rookery.access.audit.record_alone(get_operator(), PLATFORM_CHAIN, "secret_key.rotated", subject, after=fields)
        return done

    done = run(context, rotate)
    if as_json:
        print_json({"key_id": done.key_id, "changed": done.is_changed, "resealed": done.resealed_count, "deleted": done.deleted_count})
    elif done.is_changed:
        changes = f"{format_count(done.resealed_count, 'value was', 'values were')} re-encrypted"
        if delete_lost:
            changes += f", {format_count(done.deleted_count, 'was', 'were')} deleted"
        print(f"The secret key is {done.key_id} now; {changes}.")  # noqa: T201 - the output
    else:
        print(  # noqa: T201 - the output of the command
            "ROOKERY_SECRET_KEY is the current key already. To change it, set it to a new key, and set ROOKERY_SECRET_KEY_PREVIOUS "
            "to the current one."
        )


async def _inspect_secrets(rookery: Rookery) -> SealingReport:
    return await rookery.sealing.rotation.inspect_columns()
