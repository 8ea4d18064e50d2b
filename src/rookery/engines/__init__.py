"""One folder per port, one file per engine; each folder's `open` picks an engine by its address."""
