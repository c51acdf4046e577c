"""The sans-IO machines of the client."""
