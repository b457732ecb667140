"""Solvers for the subproblem (12) of the proximal augmented Lagrangian, as parts of `ProxAL(inner=...)`."""
