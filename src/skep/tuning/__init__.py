"""Tuning: search configuration as files that can be checked, measured, compared and deployed.

A *workspace* is a folder with collections, documents, search configs and evals. Documents become memories of
kind `document` in a bank; a search config becomes the recall config of that bank, but only through the gate.
"""

from __future__ import annotations
