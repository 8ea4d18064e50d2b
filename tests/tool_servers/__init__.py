"""Real tool servers of others, alone and behind Rookery: `make tool-servers`."""
