"""The report of a run: one page that opens with the answer, loads nothing, and reads on a phone and on paper."""
