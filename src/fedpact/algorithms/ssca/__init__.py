"""Mini-batch stochastic successive convex approximation, rows or columns split."""
