"""The rate of a host: the arithmetic."""

from __future__ import annotations

import pytest

from rookery.notifications.pacing import HostRate

_SECOND_US = 1_000_000


@pytest.mark.parametrize("per_second", [1, 3, 7, 20, 1_000, 100_000])
def test_a_host_gets_its_rate_and_no_more(per_second: int) -> None:
    """Over ten seconds, checked at every wait, the messages are those of the rate and of one burst."""
    rate, paid_until, sent = HostRate(per_second), None, 0
    step_us = int(rate.wait_s * _SECOND_US)
    for now_us in range(1_700_000_000 * _SECOND_US, 1_700_000_010 * _SECOND_US, step_us):
        count = rate.count_room(paid_until, now_us)
        assert (count >= 1) == (paid_until is None or paid_until <= rate.get_latest_with_room(now_us))
        if count:
            paid_until = rate.pay(paid_until, now_us, count)
            sent += count
        assert rate.count_room(paid_until, now_us) == 0, "the room is used up"

    assert 0.95 * 10 * per_second - 1 <= sent <= 10 * per_second + max(2, per_second / 4)


def test_an_idle_host_has_its_full_rate_again() -> None:
    """Its row can be deleted, because a host without a row has its full rate."""
    rate = HostRate(50)
    full = rate.count_room(None, 0)
    paid_until = rate.pay(None, 0, full)

    assert rate.count_room(paid_until, 0) == 0
    assert rate.count_room(paid_until, _SECOND_US) == rate.count_room(None, _SECOND_US) == full == 12
