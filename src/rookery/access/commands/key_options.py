"""Options of the commands on keys: grants, expiry and allow-lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

import typer

from rookery.access.key_fields import KeyChanges
from rookery.access.models import KeyRestrictions
from rookery.access.scopes import PRESETS
from rookery.kernel.unset import UNSET
from rookery.terminal.options import parse_expiry, raise_usage_error, split_names

KeyIdArgument = Annotated[str, typer.Argument(help="The key's id.")]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires-at", help="The expiry: a time such as 2027-01-31, or 90d for 90 days from now.", show_default=False)
]
NeverOption = Annotated[bool, typer.Option("--never", help="Remove the expiry.")]
PresetOption = Annotated[str | None, typer.Option(help=f"A set of permissions: {', '.join(PRESETS)}.", show_default=False)]
ServersOption = Annotated[
    list[str] | None, typer.Option("--server", help="Allow only these tool servers; may be repeated.", show_default=False)
]
ToolsOption = Annotated[
    list[str] | None,
    typer.Option("--tool", help="Allow only tools that match this server/tool pattern; may be repeated.", show_default=False),
]
OrgsOption = Annotated[
    list[str] | None, typer.Option("--org", help="Allow only memories of this org; may be repeated.", show_default=False)
]
ProjectsOption = Annotated[
    list[str] | None, typer.Option("--project", help="Allow only memories of this project; may be repeated.", show_default=False)
]
ToolLimitsOption = Annotated[
    list[str] | None, typer.Option("--tool-limit", help="Calls per minute by pattern, for example 'web/*=10'.", show_default=False)
]
AllServersOption = Annotated[bool, typer.Option("--all-servers", help="Remove the restriction to tool servers.")]
AllToolsOption = Annotated[bool, typer.Option("--all-tools", help="Remove the restriction to tools.")]
AllOrgsOption = Annotated[bool, typer.Option("--all-orgs", help="Remove the restriction to orgs.")]
AllProjectsOption = Annotated[bool, typer.Option("--all-projects", help="Remove the restriction to projects.")]
NoToolLimitsOption = Annotated[bool, typer.Option("--no-tool-limits", help="Remove the limits on tools.")]


def parse_new_expiry(text: str | None, *, never: bool) -> datetime | UNSET | None:
    """Parse a change of an expiry; UNSET if neither a time nor *never* is given."""
    if text is not None and never:
        raise_usage_error("Use either --expires-at or --never.")
    return None if never else UNSET if text is None else parse_expiry(text)


def parse_grants(preset: str | None, values: Sequence[str] | None, *, option: str) -> tuple[str, ...]:
    """Return the grants of a preset and of *option* together; at least one is required."""
    if preset is not None and preset not in PRESETS:
        raise_usage_error(f"{preset!r} is not a preset. The presets are {', '.join(PRESETS)}.")
    requested_grants = (*(PRESETS[preset] if preset else ()), *split_names(values))
    if not requested_grants:
        raise_usage_error(f"Use --preset or {option} to grant at least one permission.")
    return requested_grants


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowListOptions:
    """Allow-lists from the command line; None: not given. An empty list, given as '', allows nothing."""

    servers: Sequence[str] | None
    tools: Sequence[str] | None
    orgs: Sequence[str] | None
    projects: Sequence[str] | None
    tool_limits: Sequence[str] | None

    def to_restrictions(self) -> KeyRestrictions:
        """Return the restrictions of a new key. Lists that are not given do not restrict it."""
        return KeyRestrictions(
            servers=frozenset(split_names(self.servers)) if self.servers else None,
            tools=split_names(self.tools) if self.tools else None,
            orgs=_parse_full_names(self.orgs) if self.orgs else None,
            projects=_parse_full_names(self.projects) if self.projects else None,
            tool_limits=_parse_tool_limits(self.tool_limits),
        )

    def to_changes(self, base: KeyChanges, *, removed_lists: Mapping[str, bool]) -> KeyChanges:
        """
        Return *base* with the changes of the lists. Lists that are not given stay as they are.

        Args:
            removed_lists: The names of our fields; True removes that restriction.
        """
        for name, is_removed in removed_lists.items():
            if is_removed and getattr(self, name):
                raise_usage_error(f"Use either an option that sets {name} or the one that removes the restriction of {name}.")
        new = self.to_restrictions()
        changes = replace(
            base, **{name: getattr(new, name) for name, is_removed in removed_lists.items() if is_removed or getattr(self, name)}
        )
        if changes == KeyChanges():
            raise_usage_error("Use at least one option that changes the key; --help lists them.")
        return changes


def _parse_full_names(names: Sequence[str]) -> frozenset[str]:
    """Return names that may contain commas, without empty ones."""
    return frozenset(name for name in names if name)


def _parse_tool_limits(values: Sequence[str] | None) -> dict[str, int]:
    by_glob: dict[str, int] = {}
    for limit in values or ():
        glob, _, number = limit.rpartition("=")
        if not glob or not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise_usage_error(f"{limit!r} is not a valid tool limit. Use 'server/tool=CALLS', with the calls per minute as CALLS.")
        by_glob[glob] = int(number)
    return by_glob
