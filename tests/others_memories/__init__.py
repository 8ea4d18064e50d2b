"""The memories of other programs, written by the real programs and imported: `make others-memories`."""
