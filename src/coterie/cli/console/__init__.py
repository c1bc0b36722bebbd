"""Local pages for a browser: a run for its analyst, a site for its data officer."""
