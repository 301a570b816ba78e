"""The command line: one module per group of commands, imported only when a command of it runs."""
