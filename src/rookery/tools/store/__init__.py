"""The tables of the tools domain and all queries on them: the only SQL of the domain."""
