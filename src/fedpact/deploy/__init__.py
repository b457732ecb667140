"""The same problem across organisations: what a party runs, what the server runs, and the engines that carry their messages."""
