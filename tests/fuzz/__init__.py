"""Generated inputs at every door of skep: `python -m tests.fuzz N` for many, `test_doors.py` for a few."""
