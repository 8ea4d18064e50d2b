"""Implementations of the ports: one folder per port, one file per engine. `open` of a folder selects an engine by its address."""
