"""A run across organisations: what server and parties say to each other, and the engines that carry it."""
