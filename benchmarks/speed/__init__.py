"""The speed harness: one workload, every engine in its own process, all in the same run."""
