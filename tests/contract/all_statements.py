"""Every statement: importing this module registers those of each module of the folder."""

from __future__ import annotations

from tests.contract import errors, keys, maintenance, memory, platform, tool_servers, webhooks, work
from tests.contract.statements import STATEMENTS

MODULES = (tool_servers, keys, memory, maintenance, work, platform, webhooks, errors)

__all__ = ["MODULES", "STATEMENTS"]
