"""The proximal augmented Lagrangian method, its inner solvers and its centralised reference."""
