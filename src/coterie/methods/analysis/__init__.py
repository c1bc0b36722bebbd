"""Questions about data rather than clusterings of it: how many clusters there are."""
