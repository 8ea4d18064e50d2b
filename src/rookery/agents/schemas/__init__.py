"""What callers send and what they are answered."""
