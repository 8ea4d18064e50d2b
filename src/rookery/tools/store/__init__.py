"""The tables of tool servers and every query on them: the only SQL of the domain."""
