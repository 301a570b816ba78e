"""Quality: every preset and peer ranker on sets of labelled questions, with hand-written metrics."""
