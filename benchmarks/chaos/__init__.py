"""Chaos: a plan from a seed kills, stops and damages everything, and an oracle outside says what was broken by that."""
