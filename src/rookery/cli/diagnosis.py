"""`rookery doctor`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import structlog
import typer
from rich.console import Console

from rookery.cli.platform import build_prepared
from rookery.cli.store import NO_DATA_ADVICE, has_data
from rookery.doctor import DoctorFinding, examine, examine_files, examine_without_store, has_no_problem
from rookery.kernel.config import Settings
from rookery.kernel.errors import WrongSettings
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption
from rookery.wiring import build_platform

_DEEP = "Read every page of every database and compare the indexes with the records; takes time on large stores."

_log = structlog.stdlib.get_logger("rookery.cli")


def doctor(
    context: typer.Context,
    *,
    deep: Annotated[bool, typer.Option(help=_DEEP)] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the installation and print advice for each problem. The exit code is 1 if there is a problem."""
    findings = asyncio.run(_examine(get_settings(context), deep=deep))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))  # noqa: T201 - the output of the command
    else:
        console, colours = Console(), {"ok": "green", "warning": "yellow", "problem": "bold red"}
        for finding in findings:
            console.print(f"[{colours[finding.grade]}]{finding.grade:8}[/] {finding.about}: ", end="", highlight=False)
            console.print(
                finding.says + (f"{'' if finding.says.endswith(('.', '!', '?')) else '.'} {finding.advice}" if finding.advice else ""),
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    if not has_no_problem(findings):
        raise typer.Exit(1)


async def _examine(settings: Settings, *, deep: bool) -> list[DoctorFinding]:
    files = examine_files(settings, deep=deep)  # before anything is opened, because opening creates missing files
    if not has_data(settings):
        text = f"{settings.data_dir} {'contains no data of Rookery' if settings.data_dir.is_dir() else 'does not exist'}"
        missing = DoctorFinding(about="data folder", grade="problem", says=text, advice=NO_DATA_ADVICE)
        return [*files, missing, *examine_without_store(build_platform(settings))]
    try:
        rookery = build_prepared(settings)
    except WrongSettings:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged store raises exceptions of many classes; the other checks still run
        _log.debug("doctor.not_prepared", reason=str(error))
        rookery = build_platform(settings)
    async with rookery.open_for_command(require_database=False):
        return [*files, *await examine(rookery, deep=deep)]
