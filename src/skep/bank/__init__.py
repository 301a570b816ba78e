"""The façade: the verbs of `Bank`, and the bank as a file."""
