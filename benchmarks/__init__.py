"""Scripts that measure the published figures; README.md lists the figures."""
