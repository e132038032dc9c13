"""Federated learning in which devices of very unequal size train together."""
