"""Solving: the loop over rounds, its history, what is saved, and what comes back."""
