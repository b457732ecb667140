"""Models that have left their run: saved, loaded and used without JAX."""
