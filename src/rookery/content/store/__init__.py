"""The tables of content generation and their queries."""
