"""A storage server: journal, write cache, entry log, index, and the service that answers for them."""
