"""The port of access that reports need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rookery.kernel.db import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePorts:
    """
    The implementations that usage gets from access.

    Attributes:
        find_key_names: Returns the names of keys of any workspace by id, deleted ones included. Only for keys of rows that the caller
            may see.
    """

    find_key_names: Callable[[Tx, Sequence[str]], Mapping[str, str]]
