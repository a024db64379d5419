"""The report of a run: one self-contained page that begins with the answer, for screens, phones and paper."""
