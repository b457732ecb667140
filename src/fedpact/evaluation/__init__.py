"""What a model decides, counted by party and group: the question, the counts that travel, the rates made of them."""
