"""Measurements: speed and quality against peers. Not shipped with the package."""
