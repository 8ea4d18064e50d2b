"""Print how many statements of the contract hold, by section, and those that do not: `make contract`."""

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
    """Try each statement once on one server; exit with 1 when one does not hold."""
    wanted = " ".join(sys.argv[1:])
    chosen = [each for each in STATEMENTS if wanted in each.id]
    console = Console()
    broken, by_section = list[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="rookery-contract-") as folder, open_api(Path(folder)) as api:
        for each in track(chosen, description="Statements", console=console, disable=not console.is_terminal):
            try:
                each.check(api)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever goes wrong, pytest.fail too, the statement does not hold
                broken.append(f"{each.id}\n    {type(error).__name__}: {str(error)[:400]}")
            else:
                by_section[each.section] += 1
    for section, total in sorted(Counter(each.section for each in chosen).items()):
        console.print(f"{section:9} {by_section[section]:3} of {total}", highlight=False)
    for text in broken:
        console.print(text, markup=False, highlight=False, style="red")
    console.print(f"{len(chosen) - len(broken)} of {len(chosen)} statements hold", highlight=False)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
