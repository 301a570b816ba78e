"""Placeholder until the comparer lands."""

import numpy as np


def update_scores(earlier, later, earlier_vectors=None, later_vectors=None):
    return np.zeros(len(earlier))
