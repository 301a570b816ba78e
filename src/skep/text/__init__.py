"""Text in; terms, dates and redacted text out. Pure functions."""
