"""`rookery doctor`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import typer
from rich.console import Console

from rookery.access.commands.terminal import Json, settings_of
from rookery.cli.platform import prepare
from rookery.doctor import Finding, examine, is_well
from rookery.wiring import Rookery


def doctor(
    context: typer.Context,
    *,
    as_json: Json = False,
) -> None:
    """Look for what is wrong, and say what to do; exit code 1 if something does not work."""
    findings = asyncio.run(_examine(prepare(settings_of(context))))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))  # noqa: T201 - the command's answer
    else:
        console, colours = Console(), {"ok": "green", "warning": "yellow", "problem": "bold red"}
        for finding in findings:
            console.print(f"[{colours[finding.grade]}]{finding.grade:8}[/] {finding.about}: ", end="", highlight=False)
            console.print(finding.says + (f". {finding.advice}" if finding.advice else ""), highlight=False, markup=False, soft_wrap=True)
    if not is_well(findings):
        raise typer.Exit(1)


async def _examine(rookery: Rookery) -> list[Finding]:
    async with rookery.for_command():
        return await examine(rookery)
