"""Modules that `make client` writes."""
