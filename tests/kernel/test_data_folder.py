"""The permissions of the data folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rookery.kernel.data_folder import describe_exposure, make_private
from tests.processes import get_environment, run_rookery


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _init(folder: Path) -> str:
    """Run `rookery init` with the permissive umask of most systems, and return its standard error."""
    environment = get_environment() | {"ROOKERY_BCRYPT_COST": "4"}
    process = run_rookery("init", "--json", data_dir=folder, environment=environment, umask=0o022)
    assert process.returncode == 0, process.stderr
    return process.stderr


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o775])
def test_a_folder_that_is_open_to_others_is_tightened(tmp_path: Path, mode: int) -> None:
    """The records of an existing folder with mode 0755 were readable by everybody."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)

    output = _init(folder)

    assert f"had mode {mode:04o}" in output
    assert "is 0700 now" in output
    assert _mode(folder) == 0o700
    assert {_mode(file) for file in folder.iterdir() if file.is_file()} == {0o600}
    assert "data folder" not in _init(folder), "the second run prints nothing"


def test_a_folder_with_other_files_keeps_its_mode(tmp_path: Path) -> None:
    """It may be a home or shared folder; the databases are private nevertheless."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").write_text("not Rookery's", encoding="utf-8")
    (folder / "letter.txt").chmod(0o644)

    lines = make_private(folder)
    output = _init(folder)

    assert (len(lines), _mode(folder), _mode(folder / "letter.txt")) == (1, 0o755, 0o644)
    assert "files that are not Rookery's" in lines[0]
    assert "files that are not Rookery's" in output.replace("\\", "")
    assert _mode(folder / "records.db") == 0o600


def test_a_folder_of_an_older_version_is_tightened_with_its_databases(tmp_path: Path) -> None:
    """Older versions created records.db with mode 0644."""
    (tmp_path / "records.db").touch(mode=0o644)
    (tmp_path / "records.db-wal").touch(mode=0o644)
    tmp_path.chmod(0o755)

    assert len(make_private(tmp_path)) == 1
    assert (_mode(tmp_path), _mode(tmp_path / "records.db"), _mode(tmp_path / "records.db-wal")) == (0o700, 0o600, 0o600)


def test_a_file_deleted_during_the_check_does_not_stop_the_start(tmp_path: Path) -> None:
    """Another process may delete its journal at that moment; a dangling link behaves the same."""
    (tmp_path / "earlier.db-journal").symlink_to(tmp_path / "nowhere")

    _init(tmp_path)

    assert _mode(tmp_path / "records.db") == 0o600


def test_a_folder_that_a_group_may_read_is_accepted(tmp_path: Path) -> None:
    """PostgreSQL allows the same; `rookery doctor` reports access of all others."""
    tmp_path.chmod(0o750)
    assert (describe_exposure(tmp_path), make_private(tmp_path), _mode(tmp_path)) == (None, [], 0o750)

    tmp_path.chmod(0o777)
    assert "may change what is in it" in (describe_exposure(tmp_path) or "")
    tmp_path.chmod(0o705)
    assert "may read what is in it" in (describe_exposure(tmp_path) or "")


def test_a_folder_with_the_sticky_bit_is_never_tightened(tmp_path: Path) -> None:
    """If root uses /tmp by mistake, it must keep its mode for all other users."""
    tmp_path.chmod(0o1777)
    try:
        assert "its mode is left as it is" in make_private(tmp_path)[0]
        assert _mode(tmp_path) == 0o1777
    finally:
        tmp_path.chmod(0o700)
