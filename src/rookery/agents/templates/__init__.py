"""Plan templates: parsing, rendering and storage."""
