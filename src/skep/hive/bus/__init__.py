"""How members of a hive talk: the protocol, and one module per transport."""
