"""Commands on the whole installation leave entries in the platform's chain of the audit log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import cast

from rookery.access.operator import get_operator
from tests.conftest import lend_model
from tests.deadlines import HANG_S
from tests.processes import get_environment, run_rookery, run_server

Json = dict[str, object]
TOKEN = "tok_9f8e7d6c5b4a39281706"


def _run(folder: Path, *arguments: str) -> str:
    result = run_rookery(*arguments, data_dir=folder, environment=get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0"})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _list_entries(folder: Path, action: str) -> list[Json]:
    return list(json.loads(_run(folder, "audit", "list", "--platform", "--action", action, "--json")))


def _wait_for_entries(folder: Path, count: int) -> None:
    """Wait until the running server has recorded *count* changes of servers.json."""
    deadline = time.monotonic() + HANG_S
    while len(_list_entries(folder, "servers_file.changed")) < count:
        assert time.monotonic() < deadline


def test_a_backup_and_its_restore_leave_an_entry_each(model_folder: Path, tmp_path: Path) -> None:
    """The entry of the backup has its digest, and says whether the secret key is in it."""
    folder, copy, file = tmp_path / "data", tmp_path / "copy", tmp_path / "all.tar.zst"
    lend_model(model_folder, folder)
    _run(folder, "init")
    made = json.loads(_run(folder, "backup", str(file), "--with-secret-key", "--json"))
    _run(copy, "restore", str(file))
    (created,) = _list_entries(folder, "backup.created")
    (restored,) = _list_entries(copy, "backup.restored")

    assert cast("Json", created["subject"])["name"] == cast("Json", restored["subject"])["name"] == "all.tar.zst"
    assert cast("Json", created["after"])["sha256"] == made["sha256"]
    assert cast("Json", created["after"])["with_secret_key"] is True
    assert cast("Json", created["actor"])["name"] == get_operator().name
    _run(copy, "audit", "verify", "--platform")


def test_a_rotation_of_the_secret_key_leaves_an_entry(model_folder: Path, tmp_path: Path) -> None:
    """The entry has the ids of both keys, which are not secret."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder):
        pass  # the first start creates the key
    before = json.loads(_run(folder, "secrets", "rotate", "--dry-run", "--json"))["key_id"]
    after = json.loads(_run(folder, "secrets", "rotate", "--json"))["key_id"]
    (entry,) = _list_entries(folder, "secret_key.rotated")

    assert (cast("Json", entry["after"])["before"], cast("Json", entry["subject"])["id"]) == (before, after)


def test_changes_of_servers_json_leave_an_entry_each(model_folder: Path, tmp_path: Path) -> None:
    """A command names its user, and an edit is recorded by the server, once. No entry has a secret of the file."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    with run_server(folder):
        pass
    _run(folder, "servers", "add", "--id", "one", "--env", f"TOKEN={TOKEN}", "--", "python3", "server.py")
    _run(folder, "servers", "add", "--id", "two", "--dry-run", "--", "python3", "server.py")
    by_command = _list_entries(folder, "servers_file.changed")
    file = folder / "servers.json"
    with run_server(folder):
        document = json.loads(file.read_text(encoding="utf-8"))
        document["mcpServers"]["three"] = {"command": "python3", "args": ["other.py", TOKEN]}
        file.write_text(json.dumps(document), encoding="utf-8")
        os.utime(file, ns=(1, 1))
        _wait_for_entries(folder, 2)
    _run(folder, "servers", "remove", "one", "--yes")
    removed, edited, added = _list_entries(folder, "servers_file.changed")

    assert len(by_command) == 1
    assert [cast("Json", entry["actor"])["kind"] for entry in (added, edited, removed)] == ["operator", "system", "operator"]
    assert [cast("Json", entry["after"])["servers"] for entry in (added, edited, removed)] == [["one"], ["one", "three"], ["three"]]
    assert cast("Json", edited["before"])["servers"] == ["one"]
    assert TOKEN not in json.dumps([added, edited, removed])


def test_a_server_that_is_added_before_the_first_start_is_recorded_by_it(model_folder: Path, tmp_path: Path) -> None:
    """The command creates no record store."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    _run(folder, "servers", "add", "--id", "one", "--", "python3", "server.py")
    exists = (folder / "records.db").exists()
    with run_server(folder):
        _wait_for_entries(folder, 1)

    assert not exists
