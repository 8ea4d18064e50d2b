"""`rookery usage`: a table with charts on a terminal, lines in a pipe, JSON and CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rookery.kernel.config import Settings
from rookery.usage.models import UsageEntry, UsageKind
from tests.conftest import run_instance
from tests.processes import get_environment, run_rookery

pytestmark = pytest.mark.embedded_store  # the statements are those of test_reports.py

Run = Callable[..., CompletedProcess[str]]
_RANGE = ("--since", "2026-11-01", "--until", "2026-11-30")


async def _fill(settings: Settings) -> None:
    async with run_instance(settings) as instance:
        other_id = await instance.workspace("Other")
        await instance.admin.send("PUT", "/api/agent/content/budgets/workspace", {"daily": 500, "monthly": 0})
        entry = UsageEntry(
            workspace_id=instance.workspace_id,
            day="2026-11-20",
            kind=UsageKind.GENERATION,
            model="large",
            calls=1_000,
            failed=2,
            input_tokens=1_250_000,
            cost_nanos=1_234_500_000_000,
        )
        small = replace(entry, day="2026-11-21", model="=small", cost_nanos=45_000, estimated_calls=1, unpriced_calls=1)
        ledger = instance.rookery.usage.ledger
        for each in (entry, small, replace(entry, workspace_id=other_id, model="theirs")):
            await instance.rookery.db.write(partial(ledger.add, entry=each))


def _run(settings: Settings, *arguments: str, **environment: str) -> CompletedProcess[str]:
    variables = get_environment() | {"ROOKERY_CURRENCY": "JPY"} | environment
    return run_rookery("usage", *arguments, data_dir=settings.data_dir, environment=variables)


@pytest.fixture
def usage(settings: Settings) -> Run:
    """The command on a store with two workspaces and their usage, whose currency is JPY."""
    asyncio.run(_fill(replace(settings, currency="JPY")))
    return partial(_run, settings)


def test_a_pipe_gets_lines_and_json_gets_whole_groups(usage: Run) -> None:
    """tab-separated lines in the order of the report, and JSON on request."""
    lines = [line.split("\t") for line in usage("--workspace", "default", *_RANGE, "--by", "model,day").stdout.splitlines()]
    assert [line[:3] for line in lines] == [["2026-11-21", "=small", "1000"], ["2026-11-20", "large", "1000"]]

    groups: list[dict[str, Any]] = json.loads(usage("--workspace", "default", "--month", "2026-11", "--by", "kind", "--json").stdout)
    assert [(group["kind"], group["calls"], group["cost"], group["currency"]) for group in groups] == [
        ("generation", 2_000, 1234.500045, "JPY")
    ]


def test_csv_is_written_to_a_private_file(usage: Run, tmp_path: Path) -> None:
    """Amounts are exact, and names are no formulas."""
    path = tmp_path / "usage.csv"
    assert usage("--workspace", "default", *_RANGE, "--by", "model", "--csv", "--out", str(path)).returncode == 0

    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    assert [(row["model"], row["cost"], row["currency"]) for row in rows] == [("large", "1234.5", "JPY"), ("'=small", "0.000045", "JPY")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_operator_adds_up_all_workspaces(usage: Run) -> None:
    """The command line is the operator's, so it may compare workspaces."""
    lines = [line.split("\t") for line in usage("--all-workspaces", *_RANGE, "--by", "workspace").stdout.splitlines()]

    assert [(line[1], line[2]) for line in lines] == [("default", "2000"), ("Other", "1000")]


def test_a_terminal_shows_totals_days_groups_and_budgets(usage: Run) -> None:
    """Money with the decimals of its currency, a bar for each day, and how much of each budget is used."""
    shown = usage("--workspace", "default", *_RANGE, FORCE_COLOR="1", COLUMNS="160").stdout

    assert "1,235 JPY" in shown
    assert "2,000 calls" in shown
    assert "2.5M input" in shown
    assert "0.000045 JPY" in shown
    assert shown.count("█" * 40) == 1
    assert "Budget of workspace, today" in shown
    assert "0 JPY of 500 JPY" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "colour"), "--by 'colour' is unknown"),
        (("--kind", "magic"), "--kind 'magic' is unknown"),
        (("--month", "2026-13"), "--month must be a month"),
        (("--month", "last", "--since", "7d"), "--month cannot be combined"),
        (("--since", "2026-11-02", "--until", "2026-11-01"), "--since is after the last day"),
        (("--all-workspaces", "--workspace", "default"), "either --workspace or --all-workspaces"),
        (("--json", "--csv"), "either --json or --csv"),
    ],
)
def test_an_invalid_option_is_named(settings: Settings, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2, with what is allowed."""
    result = _run(settings, *arguments)

    assert (result.returncode, message in " ".join(result.stderr.replace("│", " ").split())) == (2, True), result.stderr
