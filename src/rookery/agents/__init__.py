"""Work plans and agent sessions (spec 1, 4.2, 5.3)."""
