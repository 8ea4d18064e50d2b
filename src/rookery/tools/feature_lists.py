"""
The lists of features in memory: one default list of each server, and the own lists of holders of isolated sessions. No I/O.

A session may change what its server lists: a tool enables further tools, or a login shows the prompts of one account. What one holder
(a workspace, a key or an agent session) changed is its own. The default list is what a session lists that no caller has used.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from rookery.tools.catalogue_tool import CatalogueTool, index_by_name
from rookery.tools.models import FEATURE_KINDS, FeatureSnapshot, Server, ServerFeatures

MAX_OWN_LISTS = 1000
"""Limit on the lists of holders in memory. Beyond it, the workspace with the most lists loses the one that was stored first."""
_MAX_DROPPED = 10_000
"""Limit on the holders of dropped lists that are known. Beyond it, the oldest see the default until their session is listed again."""


@dataclass(slots=True)
class FeatureList:
    """
    One list of features.

    Attributes:
        changed_at: When the features last changed. Listing the same features again does not affect it.
        is_outdated: The list of a former entry with the same target, shown until the new entry was listed.
        workspace_id: The workspace of the holder of an own list.
    """

    snapshot: FeatureSnapshot
    tools: dict[str, CatalogueTool]
    changed_at: datetime
    is_outdated: bool = False
    workspace_id: int | None = None

    @property
    def features(self) -> ServerFeatures:
        return self.snapshot.features


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChange:
    """
    A change of what callers see.

    Attributes:
        holder: The holder whose list changed. None: the default list, which callers see whose holder has no own list.
        before: The features before the change. None: there was no list.
        after: The features after the change. None: there is no list.
        is_edit: The server was edited or removed, so callers may see other parts of the same list.
    """

    server: Server
    holder: str | None
    before: ServerFeatures | None
    after: ServerFeatures | None
    is_edit: bool = False


class FeatureLists:
    """The lists of all servers, by server key."""

    def __init__(self, *, max_own: int = MAX_OWN_LISTS) -> None:
        self._max_own = max_own
        self._defaults: dict[str, FeatureList] = {}
        self._own: OrderedDict[tuple[str, str], FeatureList] = OrderedDict()
        self._dropped: OrderedDict[tuple[str, str], None] = OrderedDict()

    def find(self, server_key: str, holder: str | None) -> FeatureList | None:
        """Return the list that *holder* sees: its own, or else the default."""
        own = None if holder is None else self._own.get((server_key, holder))
        return self._defaults.get(server_key) if own is None else own

    def find_default(self, server_key: str) -> FeatureList | None:
        return self._defaults.get(server_key)

    def has_own(self, server_key: str, holder: str) -> bool:
        return (server_key, holder) in self._own

    def is_dropped(self, server_key: str, holder: str | None) -> bool:
        """Return whether the list of *holder* was dropped at the limit. It is to be listed again when the holder needs it."""
        return holder is not None and (server_key, holder) in self._dropped

    def take_dropped(self, server_key: str, holder: str | None) -> bool:
        """Return `is_dropped`, and False from then on. One attempt to list it is enough: a session that is opened is listed anyway."""
        is_dropped = self.is_dropped(server_key, holder)
        if holder is not None:
            self._dropped.pop((server_key, holder), None)
        return is_dropped

    def list_all(self, server_key: str) -> list[FeatureList]:
        """Return the default list and all own lists of a server."""
        default = self._defaults.get(server_key)
        own = [feature_list for (key, _), feature_list in self._own.items() if key == server_key]
        return own if default is None else [default, *own]

    def iter_defaults(self) -> Iterator[tuple[str, FeatureList]]:
        """Iterate over the default lists with the keys of their servers."""
        return iter(tuple(self._defaults.items()))

    def store_default(self, snapshot: FeatureSnapshot) -> FeatureList:
        """Replace the default list, and drop all lists of a former entry."""
        old = self._defaults.get(snapshot.server_key)
        if old is not None and old.is_outdated:
            self.drop_outdated(snapshot.server_key)
        feature_list = self._build(old, snapshot)
        self._defaults[snapshot.server_key] = feature_list
        return feature_list

    def store_own(self, snapshot: FeatureSnapshot, holder: str, workspace_id: int | None) -> None:
        """
        Replace the list of a holder. A list that equals the default is not stored: the holder then sees later defaults too.

        Args:
            workspace_id: The workspace of the holder. At the limit, no workspace loses a list to one that has more.
        """
        key = snapshot.server_key, holder
        old = self._own.pop(key, None)
        self._dropped.pop(key, None)
        default = self._defaults.get(snapshot.server_key)
        if default is not None and not default.is_outdated and default.features == snapshot.features:
            return
        self._own[key] = self._build(old or default, snapshot)
        self._own[key].workspace_id = workspace_id
        while len(self._own) > self._max_own:
            self._drop_oldest_of_largest()

    def _drop_oldest_of_largest(self) -> None:
        """Drop the list that was stored first of those workspaces that have the most lists."""
        counts = Counter(own.workspace_id for own in self._own.values())
        largest = max(counts.values())
        key = next(key for key, own in self._own.items() if counts[own.workspace_id] == largest)
        del self._own[key]
        self._dropped[key] = None
        while len(self._dropped) > _MAX_DROPPED:
            self._dropped.popitem(last=False)

    def _build(self, old: FeatureList | None, snapshot: FeatureSnapshot) -> FeatureList:
        """Return the list of *snapshot*. Equal tools of a server are one object in all its lists, with the compiled schema."""
        is_same = old is not None and old.features == snapshot.features
        indexes = [feature_list.tools for feature_list in (old, *self.list_all(snapshot.server_key)) if feature_list is not None]
        changed_at = old.changed_at if old is not None and is_same else snapshot.seen_at
        return FeatureList(snapshot, index_by_name(snapshot.features, indexes), changed_at)

    def mark_outdated(self, server_key: str) -> None:
        """Mark all lists of a server as those of a former entry."""
        for feature_list in self.list_all(server_key):
            feature_list.is_outdated = True

    def drop_outdated(self, server_key: str) -> ServerFeatures | None:
        """Drop the lists of a former entry. Return the features of the default list if it was one of them."""
        for key in [key for key, own in self._own.items() if key[0] == server_key and own.is_outdated]:
            del self._own[key]
        default = self._defaults.get(server_key)
        if default is None or not default.is_outdated:
            return None
        del self._defaults[server_key]
        return default.features

    def drop(self, server_key: str) -> None:
        self._defaults.pop(server_key, None)
        for by_holder in (self._own, self._dropped):
            for key in [key for key in by_holder if key[0] == server_key]:
                del by_holder[key]


def fill_failed_lists(features: ServerFeatures, old: ServerFeatures | None) -> ServerFeatures:
    """Return *features*, in which a kind that could not be listed has the items of *old*."""
    failed = [kind for kind in FEATURE_KINDS if kind in features.list_errors]
    return features if old is None or not failed else replace(features, **{kind: getattr(old, kind) for kind in failed})
