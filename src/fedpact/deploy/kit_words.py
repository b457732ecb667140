"""What the READMEs of all kits say of secure sums; `policy` is the path of a party's policy in its folder."""

SECURE_SUMS = """\
## What the server can read
- With three parties or more, and a method that needs sums only, **sums are secure unless the pact says otherwise**: the server
  learns sums over parties, and of maxima a power of two. `fedpact wire` says on top whether that is so for your pact. A party
  that is lost stops the run, which can be resumed.
- `fedpact keys` makes a party's own signing key and prints its public half. With `keys = {{"north": "…", …}}` in the pact, the
  public half of every party, nobody can take a party's place, and over rows every party also checks the points that it is
  asked at. Without `keys`, sums are secure against a server that looks, not against one that puts its own keys in the parties'
  places. The keys in this kit are others: whoever made the kit has seen them.
- In `{policy}` of a party: `secure_summation = true` (default false) refuses pacts that add up in the clear, have no `keys` or
  tell constraints one by one; `checked_points = true` (default false) refuses those whose points no party checks;
  `min_parties` (default 3) is the least number of parties in a secure sum; `signing_key` is the file of its own key, relative
  to the policy (default: `FEDPACT_KEY`, else where `fedpact keys` puts it).
- `options = {{"privacy": None}}` in the pact means that the server receives what each party says. Recipes, evaluations and the
  counts of a promise are told by each party in any case.
"""
