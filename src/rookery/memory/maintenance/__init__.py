"""Maintenance of all memories (spec 4.4)."""
