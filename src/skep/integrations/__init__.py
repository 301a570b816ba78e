"""A place in every agent's workflow: client configuration, hooks, importers, audit."""
