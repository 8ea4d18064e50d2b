"""How servers and tools are found: by search, by what is published, by clients' set-ups (D-35, D-37)."""
