"""Agents on top of a memory."""
