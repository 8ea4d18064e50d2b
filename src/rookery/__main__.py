"""The program `rookery`, also as `python -m rookery`. Hooks of coding agents start without the rest of the command line."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Run the command line."""
    is_hook = sys.argv[1:2] == ["hook"] and "--help" not in sys.argv
    import_module("rookery.coding_agents.hook_command" if is_hook else "rookery.cli").main()


if __name__ == "__main__":
    main()
