"""Operators' work on the whole memory (spec 4.4)."""
