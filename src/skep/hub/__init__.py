"""Hubs: a log that several machines share, the local replica of it, and one file per kind of hub."""
