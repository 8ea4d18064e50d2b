"""The builder of the documentation site: `make docs`."""
