"""What a curious or lying server tries: with guards off it recovers rows, with guards on the same code does not."""
