"""Output of `rookery secrets` and `rookery doctor` about the secret key (D-07)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.kernel.sealing import KeySource
from rookery.wiring import build_platform
from tests.conftest import run_instance

_OTHER = "another secret key, 0123456789 0123456789"


async def test_the_doctor_says_what_is_wrong_with_the_key(settings: Settings) -> None:
    """D-07: doctor: the key is there, for its owner alone, and opens what is sealed."""
    if settings.secret_key is not None:
        pytest.skip("a shared record store has no secret.key")
    async with run_instance(settings) as instance:
        marked = {"Idempotency-Key": "1"}
        assert (await instance.admin.post("/v1/brain/remember", {"type": "fact", "content": "x"}, **marked)).status_code == 201
    path = settings.data_dir / "secret.key"

    async def finding() -> tuple[str, str]:
        async with build_platform(settings).open_for_command() as rookery:
            [found] = [each for each in await examine(rookery) if each.about == "secrets"]
        return found.grade, f"{found.says}. {found.advice}"

    assert (await finding())[0] == "ok"
    path.chmod(0o644)
    assert (await finding())[0] == "problem"
    path.chmod(0o600)
    kept = path.read_text(encoding="utf-8")
    path.write_text(kept + _OTHER + "\n", encoding="utf-8")
    assert (await finding())[0] == "ok"
    path.write_text(_OTHER + "\n", encoding="utf-8")
    grade, says = await finding()
    assert (grade, "--lost" in says) == ("problem", True)
    path.write_text("short\n", encoding="utf-8")
    assert (await finding())[0] == "problem"


def _rookery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=40, stdin=subprocess.DEVNULL)


def test_the_command_changes_the_key_and_says_so(data_dir: Path) -> None:
    """D-04: secrets rotate, with --json; what destroys asks, and off a terminal needs --yes."""
    assert _rookery(data_dir, "secrets", "rotate").returncode == 1  # there is none yet, which is one line
    assert _rookery(data_dir, "init").returncode == 0
    before = (data_dir / "secret.key").read_bytes()
    dry = _rookery(data_dir, "secrets", "rotate", "--dry-run", "--json")
    assert (json.loads(dry.stdout)["dry_run"], (data_dir / "secret.key").read_bytes()) == (True, before)

    done = _rookery(data_dir, "secrets", "rotate", "--json")

    assert done.returncode == 0, done.stderr
    key_id = KeySource(data_dir).get_or_create_first().id
    assert json.loads(done.stdout) == {"key_id": key_id, "changed": True, "resealed": 0, "deleted": 0}
    assert (data_dir / "secret.key").read_bytes() != before
    assert _rookery(data_dir, "secrets", "rotate", "--lost").returncode == 2


def test_a_start_without_the_key_is_one_line(data_dir: Path) -> None:
    """D-02, D-07: refuses to start, and says what is missing and what to do."""
    assert _rookery(data_dir, "init").returncode == 0
    (data_dir / "secret.key").unlink()
    refused = _rookery(data_dir, "serve", "--port", "0")

    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (1, 1), refused.stderr
    assert "rookery secrets rotate --lost" in refused.stderr
    assert _rookery(data_dir, "secrets", "rotate", "--lost", "--yes").returncode == 0
    assert _rookery(data_dir, "init").returncode == 0
