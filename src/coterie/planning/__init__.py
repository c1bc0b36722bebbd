"""What a run would cost and disclose, before anything is sent."""
