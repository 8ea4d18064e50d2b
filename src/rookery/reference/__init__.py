"""The documentation that the server makes of itself (spec 4.5, D-83)."""
