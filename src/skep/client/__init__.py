"""Banks of a skep server, used over HTTP as if they were here."""
