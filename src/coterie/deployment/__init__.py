"""Runs over sites that are other organisations': what an analyst orders, how it is carried out, and a federation of
real processes on one machine to try it."""
