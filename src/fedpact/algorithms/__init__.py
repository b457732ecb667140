"""The methods: a folder for each family, and `parts` for what they share."""
