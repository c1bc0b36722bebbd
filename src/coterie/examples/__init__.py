"""The demonstration, its data, and small data sets to try things out with."""
