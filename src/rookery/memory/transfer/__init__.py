"""Export and import of memories: all fields as JSON lines, Markdown notes, and the formats of other tools."""
