"""The generator of `rookery_client.generated`: `make client`."""
