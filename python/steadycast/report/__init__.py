"""The report of a run: a self-contained page for screens, phones and paper. It begins with a summary in sentences."""
