"""A place in every agent's workflow: client configuration, hooks, importers, audit."""

from __future__ import annotations
