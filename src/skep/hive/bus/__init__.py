"""The bus of a hive: the protocol, and one module per transport."""
