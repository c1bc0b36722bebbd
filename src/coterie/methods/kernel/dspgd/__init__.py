"""By distributed stochastic proximal gradient descent."""
