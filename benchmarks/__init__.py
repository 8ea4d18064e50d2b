"""What every published figure was taken with; README.md has the figures."""
