"""A memory for AI agents in one file."""
