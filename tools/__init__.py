"""The quire command: the only place that prints, parses arguments and starts the reactor."""
