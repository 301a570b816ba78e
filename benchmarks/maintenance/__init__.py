"""Measurements of maintenance: merging, updated facts, what a run costs."""
