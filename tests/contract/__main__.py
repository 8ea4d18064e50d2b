"""Print how many statements of the contract hold, by subject, and those that do not: `make contract`."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.contract.all_statements import STATEMENTS
from tests.contract.statements import open_api


def main() -> None:
    """Check each statement once on one server; exit with 1 if one does not hold."""
    pattern = " ".join(sys.argv[1:])
    selected = [item for item in STATEMENTS if pattern in item.id]
    console = Console()
    failures, by_subject = list[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="rookery-contract-") as folder, open_api(Path(folder)) as api:
        for item in track(selected, description="Statements", console=console, disable=not console.is_terminal):
            try:
                item.check(api)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - the statement fails with any exception, also that of pytest.fail
                failures.append(f"{item.id}\n    {type(error).__name__}: {str(error)[:400]}")
            else:
                by_subject[item.subject] += 1
    for subject, total in sorted(Counter(item.subject for item in selected).items()):
        console.print(f"{subject:12} {by_subject[subject]:3} of {total}", highlight=False)
    for text in failures:
        console.print(text, markup=False, highlight=False, style="red")
    console.print(f"{len(selected) - len(failures)} of {len(selected)} statements hold", highlight=False)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
