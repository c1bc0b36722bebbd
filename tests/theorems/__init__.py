"""The papers' theorems, held against runs."""
