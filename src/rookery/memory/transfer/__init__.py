"""Memories moved out of a store and into one: whole, as JSON lines, as Markdown notes, from what other tools wrote (D-04)."""
