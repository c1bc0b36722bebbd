"""k-means of rows."""
