"""The narrow waist: what an algorithm may ask of parties, and what a run may ask of an algorithm."""
