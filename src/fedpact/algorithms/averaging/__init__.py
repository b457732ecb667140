"""Methods that average gradients or local steps, without constraints: the baselines."""
