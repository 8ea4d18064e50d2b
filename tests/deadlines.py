"""The deadline of waits in tests."""

from __future__ import annotations

HANG_S = 300.0
"""
After this time, tests give up waiting. It only ends tests that would hang, so it is long enough for a machine ten times slower.

What the product promises about time is compared with a measurement on the same machine, or counted, instead.
"""
