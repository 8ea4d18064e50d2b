"""A call from its arguments to its row: run, kept, streamed, counted (D-34, D-38)."""
