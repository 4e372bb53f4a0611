"""What is measured in: stores that are filled, and what they are filled with."""
