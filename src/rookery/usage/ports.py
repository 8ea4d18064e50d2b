"""The ports of other domains that reports need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.db import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedBudget:
    """
    A budget with a limit, and what is used of it.

    Attributes:
        name: The budget in words, such as `workspace, this month`.
        used_nanos: The amount that is spent or reserved.
    """

    name: str
    currency: str
    limit_nanos: int
    used_nanos: int
    resets_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePorts:
    """
    The implementations that usage gets from access and content.

    Attributes:
        find_key_names: Returns the names of keys of any workspace by id, deleted ones included. Only for keys of rows that the caller
            may see.
        list_budgets: Returns the budgets of a workspace and of its keys that have a limit.
    """

    find_key_names: Callable[[Tx, Sequence[str]], Mapping[str, str]]
    list_budgets: Callable[[int], Awaitable[Sequence[UsedBudget]]]
