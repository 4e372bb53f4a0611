"""Measurements of turnkeeper through its public face, each beside a plain base that does the same work."""
