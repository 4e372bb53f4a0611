"""Functions that take processor time, run in processes that are kept for them."""
