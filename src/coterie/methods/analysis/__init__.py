"""Questions about data rather than clusterings of it: what columns hold, how many clusters there are."""
