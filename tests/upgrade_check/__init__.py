"""An older version's data folder under this version: `make upgrade-check`."""
