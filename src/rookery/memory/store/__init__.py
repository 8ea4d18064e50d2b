"""The tables of memory and every query on them: the only SQL of the domain, each statement bound to a workspace."""
