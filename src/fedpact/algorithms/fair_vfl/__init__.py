"""Fair vertical learning with active and passive parties."""
