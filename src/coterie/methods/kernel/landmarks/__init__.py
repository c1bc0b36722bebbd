"""By landmarks."""
