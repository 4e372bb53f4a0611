"""How long until a store serves again, after the death of whatever served it."""
