"""
Write the documentation as a site into `dist/docs`: `make docs`.

The site has the pages of `docs`, the figures, and the API description as `openapi.json`. It needs no server, and fetches nothing from
another host. The command ends with 1 if a link has no target, and names it with its page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from distribution.docs_site.build import ROOT, BuildFailed, build_site


def main() -> int:
    """Build the site and print where it is; return 1 if a page has a fault."""
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "docs")
    options = parser.parse_args()
    out: Path = options.out
    try:
        count = build_site(out)
    except BuildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    print(f"{count} pages and openapi.json in {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}; open index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
