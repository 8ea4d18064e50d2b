"""The nouns of agent work. No I/O."""
