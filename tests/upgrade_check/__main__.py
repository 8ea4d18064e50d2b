"""
Fill a data folder with an older version of Rookery, start this version on it, and compare: `make upgrade-check`.

The older version is a commit of this repository, which is checked out and installed from its own lock in a temporary folder. Its folder
is brought to this version in three ways: after a clean stop, after `kill -9` under load, and by a backup of the older version. The exit
code is 1 if something differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.upgrade_check.comparisons import render_json, render_table
from tests.upgrade_check.upgrade import WAYS, Upgrade
from tests.upgrade_check.versions import CURRENT, DEFAULT_COMMIT, install_commit, resolve_commit


def main() -> int:
    """Check the upgrade from one commit; return 1 if something differs, and 2 if the commit cannot be used."""
    parser = argparse.ArgumentParser(prog="make upgrade-check", description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument(
        "commit", nargs="?", default=DEFAULT_COMMIT, help="the older version, a commit of this repository (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the comparisons as JSON")
    parser.add_argument("--folder", type=Path, help="install older versions here and keep them, for the next run")
    arguments = parser.parse_args()
    try:
        commit = resolve_commit(arguments.commit)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    with _open_folder(arguments.folder) as folder, tempfile.TemporaryDirectory(prefix="upgrade-check-") as data:
        _report(f"installing {commit[:8]} from its lock")
        upgrade = Upgrade(install_commit(commit, folder), CURRENT, Path(data), report=_report)
        upgrade.run()
    if arguments.json:
        print(render_json(commit, upgrade.comparisons, upgrade.figures))
    else:
        print(render_table(upgrade.comparisons, WAYS))
        print("; ".join(f"{name}: {value}" for name, value in upgrade.figures.items() if value != []))
    return int(any(comparison.difference for comparison in upgrade.comparisons))


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _open_folder(folder: Path | None) -> Generator[Path]:
    """Yield a folder for installations: the given one, or one that is deleted afterwards."""
    if folder is not None:
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="upgrade-check-") as temporary:
        yield Path(temporary)


if __name__ == "__main__":
    sys.exit(main())
