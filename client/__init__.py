"""The smart client: quorums, append, read, ensemble change, fencing, recovery."""
