"""One open bank, put together: the store, its derived index, and the embedder at work on it."""
