"""Where a run takes place."""
