"""Tool calls: execution, result cache, streaming, records and statistics."""
