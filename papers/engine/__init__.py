"""How an experiment is read, run, judged and written."""
