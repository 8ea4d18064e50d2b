"""The tables of access and their queries. No other module of this domain contains SQL."""
