"""Other memories' files as items to import."""
