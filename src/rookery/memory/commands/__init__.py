"""Operators' commands on memory: `rookery brain reindex`, also written `brain:reindex`, and so on (spec 4.4, D-52)."""
