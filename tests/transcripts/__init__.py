"""Straight-line NumPy transcripts of published algorithm boxes, used as oracles."""
