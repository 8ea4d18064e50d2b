"""Maintenance commands on memory: `rookery brain reindex`, also written `brain:reindex`, and others (spec 4.4, D-52)."""
