"""Output of `rookery secrets` and `rookery doctor` about the secret key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.kernel.sealing import KeySource
from rookery.wiring import build_platform
from tests.conftest import run_instance
from tests.processes import run_rookery

_OTHER = "another secret key, 0123456789 0123456789"


async def test_the_doctor_reports_problems_of_the_secret_key(settings: Settings) -> None:
    """The key exists, only its owner can read it, and it opens the sealed values."""
    if settings.secret_key is not None:
        pytest.skip("a shared record store has no secret.key")
    async with run_instance(settings) as instance:
        headers = {"Idempotency-Key": "1"}
        assert (await instance.admin.post("/v1/brain/remember", {"type": "fact", "content": "x"}, **headers)).status_code == 201
    path = settings.data_dir / "secret.key"

    async def finding() -> tuple[str, str]:
        async with build_platform(settings).open_for_command() as rookery:
            [finding] = [entry for entry in await examine(rookery) if entry.about == "secrets"]
        return finding.grade, f"{finding.says}. {finding.advice}"

    assert (await finding())[0] == "ok"
    path.chmod(0o644)
    assert (await finding())[0] == "problem"
    path.chmod(0o600)
    original = path.read_text(encoding="utf-8")
    path.write_text(original + _OTHER + "\n", encoding="utf-8")
    assert (await finding())[0] == "ok"
    path.write_text(_OTHER + "\n", encoding="utf-8")
    grade, text = await finding()
    assert (grade, "--lost" in text) == ("problem", True)
    path.write_text("short\n", encoding="utf-8")
    assert (await finding())[0] == "problem"


def test_secrets_rotate_replaces_the_key(data_dir: Path) -> None:
    """With --json; a destructive rotation needs --yes without a terminal."""
    assert run_rookery("secrets", "rotate", data_dir=data_dir).returncode == 1  # no key exists yet
    assert run_rookery("init", data_dir=data_dir).returncode == 0
    before = (data_dir / "secret.key").read_bytes()
    dry_run = run_rookery("secrets", "rotate", "--dry-run", "--json", data_dir=data_dir)
    assert (json.loads(dry_run.stdout)["dry_run"], (data_dir / "secret.key").read_bytes()) == (True, before)

    process = run_rookery("secrets", "rotate", "--json", data_dir=data_dir)

    assert process.returncode == 0, process.stderr
    key_id = KeySource(data_dir).get_or_create_first().id
    assert json.loads(process.stdout) == {"key_id": key_id, "changed": True, "resealed": 0, "deleted": 0}
    assert (data_dir / "secret.key").read_bytes() != before
    assert run_rookery("secrets", "rotate", "--lost", data_dir=data_dir).returncode == 2


def test_a_start_without_the_key_is_a_one_line_error(data_dir: Path) -> None:
    """The server does not start; the error has the missing file and the command to run."""
    assert run_rookery("init", data_dir=data_dir).returncode == 0
    (data_dir / "secret.key").unlink()
    process = run_rookery("serve", "--port", "0", data_dir=data_dir)

    assert (process.returncode, len(process.stderr.strip().splitlines())) == (1, 1), process.stderr
    assert "rookery secrets rotate --lost" in process.stderr
    assert run_rookery("secrets", "rotate", "--lost", "--yes", data_dir=data_dir).returncode == 0
    assert run_rookery("init", data_dir=data_dir).returncode == 0
