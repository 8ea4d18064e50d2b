"""The tables of agent work and their queries. All SQL of this domain is here."""
