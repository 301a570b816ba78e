"""The written report, generated from the committed results."""
