"""What tasks cost: live ones, short ones, their output, the end of their trees."""
