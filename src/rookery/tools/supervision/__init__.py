"""Sessions with upstreams: opened, watched, opened again, closed (D-32)."""
