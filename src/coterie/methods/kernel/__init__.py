"""Kernel k-means and kernel principal components."""
