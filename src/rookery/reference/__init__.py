"""The API documentation that the server generates (spec 4.5, D-83)."""
