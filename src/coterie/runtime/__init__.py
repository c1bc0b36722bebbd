"""The server's half of a run: asking, waiting, counting, giving up, and picking up again."""
