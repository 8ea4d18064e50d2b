"""Tool calls: execution, result cache, streaming, records and statistics (D-34, D-38)."""
