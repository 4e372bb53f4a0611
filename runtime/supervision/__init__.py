"""Supervision of actors as in OTP: what a child is, what is decided about it, and who carries that out."""
