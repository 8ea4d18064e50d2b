"""
How many connections there may be at once, and who goes when one more comes (D-16).

A connection is spent before anybody has shown a key. So when all places are taken a newcomer gets that of the connection
that has waited longest; one whose request is in work is never sent away. One address has at most half of the places.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.turns import Turns

_log = structlog.stdlib.get_logger("rookery.connections")

LIMIT = 1000

OTHER_FILES = 200
"""Files that the process has open beside connections: about 35 when idle, then three pipes for each stdio tool server."""

LEAST_RATE = 8 * 1024
"""Bytes a second, both ways: less is no slow line (64 kbit/s) but somebody who holds a place."""

PATIENCE_S = 30.0
"""How long nobody needs to send or to read anything."""

_SWEEP_S = 5.0
_QUIET_S = 60.0


class ServerFull(RookeryError):
    """As many requests are in work as there may be connections, or the caller's address has its share of them."""

    status, code = 503, "server_full"

    def __init__(self) -> None:
        super().__init__("All connections that this server has for you are in use; try again soon.", headers={"Retry-After": "1"})


class Guest(Protocol):
    """A connection, as the crowd sees it."""

    def unsent(self) -> int:
        """Return how many bytes wait for the other end to read."""
        ...

    def turn_out(self) -> None:
        """Hang up at once, whatever is unsent."""
        ...


class Patience:
    """
    A clock that runs out when somebody is too slow: bytes earn the time that they take at the least rate, 30 s at most.

    So what stalls is given up soon, what trickles no later, and what keeps the rate never, however large it is.
    """

    __slots__ = ("_at", "_full_s", "left_s")

    def __init__(self, full_s: float = PATIENCE_S) -> None:
        self._full_s = self.left_s = full_s
        self._at = time.monotonic()

    def earn(self, size: int) -> None:
        """Count the time since the last call as spent, and *size* bytes as moved in it."""
        now = time.monotonic()
        self.left_s = min(self._full_s, self.left_s - (now - self._at) + size / LEAST_RATE)
        self._at = now


class Place:
    """
    A connection's place; it waits at first.

    Attributes:
        is_moving: The other end read something since the last look; whoever knows it sets this.
    """

    __slots__ = ("_crowd", "_is_known", "_patience", "_unsent", "guest", "is_moving", "owner")

    def __init__(self, crowd: Crowd, guest: Guest, owner: str | None) -> None:
        self._crowd = crowd
        self._is_known = False
        self._patience: Patience | None = None
        self._unsent = 0
        self.guest = guest
        self.owner = owner
        self.is_moving = False

    def work(self) -> None:
        """A request has come: the place is not given to others until it waits again."""
        self._crowd.waiting(is_known=self._is_known).pop(self, None)

    def wait(self) -> None:
        """No request is in work any more. Who was answered once waits with more right than who never asked anything."""
        self._is_known = True
        self._crowd.waiting(is_known=True)[self] = None

    def leave(self) -> None:
        """Give the place back; twice does no harm."""
        self._crowd.forget(self, is_known=self._is_known)

    def is_stuck(self) -> bool:
        """Tell whether the other end does not read what is meant for it, or too slowly."""
        unsent = self.guest.unsent()
        if unsent == 0 or self.is_moving or self._patience is None:
            self._patience = Patience(PATIENCE_S) if unsent else None
        else:
            self._patience.earn(max(0, self._unsent - unsent))
        self._unsent, self.is_moving = unsent, False
        return self._patience is not None and self._patience.left_s <= 0


@dataclass(slots=True)
class Turned:
    """How many were turned away, since the start."""

    closed: int = 0
    """Because others came while they waited."""
    refused: int = 0
    """On arrival, since nobody waited."""
    stuck: int = 0
    """Because they did not read their answer."""


class Crowd:
    """
    All connections of this process.

    Args:
        limit: How many there may be.
        owner: Given an address, returns who has it, of whom each may have half of the places (D-20's neighbourhood);
            None for one that speaks for many, such as a proxy.
    """

    def __init__(self, limit: int = LIMIT, *, owner: Callable[[str], str | None] = lambda _: None) -> None:
        self.limit = limit
        self.share = max(1, limit // 2)
        self.turned = Turned()
        self.turns = Turns()
        self._owner = owner
        self._places: dict[Place, None] = {}
        self._owned: dict[str, int] = {}
        self._strangers: dict[Place, None] = {}
        self._known: dict[Place, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._said_at = -_QUIET_S

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._places)

    def enter(self, address: str | None, guest: Guest) -> Place | None:
        """Return a place for *guest*, somebody else's if need be; None: none can be had."""
        owner = None if address is None else self._owner(address)
        is_greedy = owner is not None and self._owned.get(owner, 0) >= self.share
        if (is_greedy and not self._make_room(owner)) or (len(self._places) >= self.limit and not self._make_room(None)):
            self.turned.refused += 1
            self._say()
            return None
        place = Place(self, guest, owner)
        self._places[place] = self._strangers[place] = None
        if owner is not None:
            self._owned[owner] = self._owned.get(owner, 0) + 1
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return place

    def waiting(self, *, is_known: bool) -> dict[Place, None]:
        """Return the places that may be given to others, the one that has waited longest first."""
        return self._known if is_known else self._strangers

    def forget(self, place: Place, *, is_known: bool) -> None:
        """Take *place* out."""
        if place not in self._places:
            return
        del self._places[place]
        self.waiting(is_known=is_known).pop(place, None)
        if place.owner is not None:
            self._owned[place.owner] -= 1
            if not self._owned[place.owner]:
                del self._owned[place.owner]

    def _make_room(self, owner: str | None) -> bool:
        """Send away who has waited longest: of *owner*, if it is one; strangers before others."""
        for waiting in (self._strangers, self._known):
            for place in waiting:
                if (owner is None or place.owner == owner) and not place.guest.unsent():
                    self._turn_out(place)
                    self.turned.closed += 1
                    self._say()
                    return True
        return False

    def _turn_out(self, place: Place) -> None:
        place.leave()
        place.guest.turn_out()

    def _sweep(self) -> None:
        """Give up whoever does not read."""
        for place in tuple(self._places):
            if place.is_stuck():
                self._turn_out(place)
                self.turned.stuck += 1
        again = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep) if self._places else None
        self._sweeping = again

    def _say(self) -> None:
        """Tell the operator, at most once a minute: a flood must not fill the log."""
        now = time.monotonic()
        if now - self._said_at >= _QUIET_S:
            self._said_at = now
            turned = self.turned
            _log.warning("connections.full", limit=self.limit, closed=turned.closed, refused=turned.refused, see="ROOKERY_MAX_CONNECTIONS")


def room(limit: int) -> int:
    """Return how many connections, at most *limit*, the system lets this process have, if it asks for all it may."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return limit if most == resource.RLIM_INFINITY else max(1, min(limit, most - OTHER_FILES))


def make_room(limit: int) -> int:
    """Let this process have files for *limit* connections, as far as the system allows; return for how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = room(limit)
    if soft != resource.RLIM_INFINITY and soft < possible + OTHER_FILES:
        wanted = possible + OTHER_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    return possible
