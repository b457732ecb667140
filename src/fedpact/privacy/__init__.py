"""What is done to a message between a party and the server."""
