"""Agents that replay recorded transcripts turn by turn, by a plan from a seed, and note what was acknowledged."""
