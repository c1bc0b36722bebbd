"""k-means and components from small summaries."""
