"""What an agent needs to know to tune by itself, through files and the command line."""

from __future__ import annotations

GUIDE = """\
How to tune search, with files and commands alone

The loop: read the figures, write a config, check it, measure it, compare it, deploy it. Repeat.

  skep tune fields                    which fields can be filtered, and their values
  skep tune evaluate NAME             nUDCG, distractors and the rest, per query, on the tune split
  skep tune query TEXT --config NAME  one answer in detail: ranks per signal, flags, where it was cut and why
  (write configs/NEW.json; "extends": "NAME" keeps everything you do not state)
  skep tune validate NEW              every problem at once, each with a code and a fix
  skep tune compare NAME NEW          per-query deltas, which distractors left or appeared, significance
  skep tune deploy NEW --reason TEXT  refused unless at least as good on the holdout
  skep tune history | rollback N      every version; back to any of them

Every command takes --json, and -w DIR for the workspace. Exit code 0: done. 1: refused, and the findings
say why.

Facts
- A distractor looks right and misleads the reader. It counts -1; an irrelevant result counts 0. Removing one
  distractor is usually worth more than finding one more relevant document.
- nUDCG is at most 1 and may be negative. k is fixed by the eval set, so returning fewer results is no trick.
- Only the best chunk of a document counts. Queries with no relevant document are right when nothing is returned.
- The tune split is yours to look at. Do not look at the holdout: the gate uses it, and only it.
- What usually helps, in this order: filters that leave out categories that never answer; dynamic_k, to stop at
  the cliff; abstention.floor and relative_floor, to withhold weak results; fusion and weights; late.
- distraction_detection flags results, it removes none. It needs method "hybrid".
- `skep tune autotune NAME` runs this loop by itself and writes the config with a note of what mattered.
- Nothing is deployed by editing configs/active.json: it is a copy.
"""
