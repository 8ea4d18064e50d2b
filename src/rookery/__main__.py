"""`python -m rookery`, the same as the command `rookery`."""

from rookery.cli import main

if __name__ == "__main__":
    main()
