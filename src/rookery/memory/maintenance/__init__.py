"""Maintenance of all memories."""
