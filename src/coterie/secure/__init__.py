"""Turns a sum into a masked sum: the server sees the sum over a roster, and nothing of any one site."""
