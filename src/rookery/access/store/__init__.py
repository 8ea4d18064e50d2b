"""The tables of access and their queries: the only SQL of this domain."""
