"""The tables of memory and all SQL of the domain. Each statement is bound to a workspace."""
