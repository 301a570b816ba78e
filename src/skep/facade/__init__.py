"""The methods of `Bank`, one file per group."""
