"""The federated primal-dual interior-point method."""
