"""A pact across organisations: the two ends of a run, and thin adapters that carry their bytes on a deployment engine."""
