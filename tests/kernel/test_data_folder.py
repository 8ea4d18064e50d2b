"""The data folder, as commands find it and leave it (D-03, D-07)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.kernel.data_folder import describe_exposure, make_private


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _init(folder: Path) -> str:
    """Run `rookery init` with the permissive umask of most systems; return what it wrote to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "rookery", "--data-dir", str(folder), "init", "--json"],
        env={**os.environ, "ROOKERY_BCRYPT_COST": "4"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        umask=0o022,
    )
    return done.stderr


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o775])
def test_a_folder_that_is_open_to_others_is_tightened(tmp_path: Path, mode: int) -> None:
    """Issue 14: a data folder that exists already kept 0755 and its records were readable by everybody; D-03."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)

    said = _init(folder)

    assert f"had mode {mode:04o}" in said
    assert "is 0700 now" in said
    assert _mode(folder) == 0o700
    assert {_mode(each) for each in folder.iterdir() if each.is_file()} == {0o600}
    assert "data folder" not in _init(folder), "nothing to say the second time"


def test_a_folder_that_holds_other_files_is_left_as_it_is(tmp_path: Path) -> None:
    """Issue 14: a home or a shared folder given as the data folder keeps its mode; the databases are private all the same; D-03."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").write_text("not Rookery's", encoding="utf-8")
    (folder / "letter.txt").chmod(0o644)

    lines = make_private(folder)
    said = _init(folder)

    assert (len(lines), _mode(folder), _mode(folder / "letter.txt")) == (1, 0o755, 0o644)
    assert "files that are not Rookery's" in lines[0]
    assert "files that are not Rookery's" in said.replace("\\", "")
    assert _mode(folder / "records.db") == 0o600


def test_a_folder_of_an_older_version_is_tightened_with_its_databases(tmp_path: Path) -> None:
    """Issue 14: records.db of 0644 from before; D-03."""
    (tmp_path / "records.db").touch(mode=0o644)
    (tmp_path / "records.db-wal").touch(mode=0o644)
    tmp_path.chmod(0o755)

    assert len(make_private(tmp_path)) == 1
    assert (_mode(tmp_path), _mode(tmp_path / "records.db"), _mode(tmp_path / "records.db-wal")) == (0o700, 0o600, 0o600)


def test_a_file_that_is_gone_when_its_mode_is_read_stops_no_start(tmp_path: Path) -> None:
    """Another process that closes its database deletes the log meanwhile; a dangling link is in the same state for good; D-03."""
    (tmp_path / "earlier.db-journal").symlink_to(tmp_path / "nowhere")

    _init(tmp_path)

    assert _mode(tmp_path / "records.db") == 0o600


def test_a_group_that_may_read_the_folder_is_the_operators_choice(tmp_path: Path) -> None:
    """Issue 14: as PostgreSQL allows it for its own data folder; what others may do is named for `rookery doctor`."""
    tmp_path.chmod(0o750)
    assert (describe_exposure(tmp_path), make_private(tmp_path), _mode(tmp_path)) == (None, [], 0o750)

    tmp_path.chmod(0o777)
    assert "may change what is in it" in (describe_exposure(tmp_path) or "")
    tmp_path.chmod(0o705)
    assert "may read what is in it" in (describe_exposure(tmp_path) or "")


def test_a_folder_with_the_sticky_bit_is_never_tightened(tmp_path: Path) -> None:
    """Issue 14: /tmp given by mistake to a root user must stay as it is for all others."""
    tmp_path.chmod(0o1777)
    try:
        assert "its mode is left as it is" in make_private(tmp_path)[0]
        assert _mode(tmp_path) == 0o1777
    finally:
        tmp_path.chmod(0o700)
