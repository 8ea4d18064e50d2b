"""Domain models of plans, sessions and templates. No I/O."""
