"""What messages to actors cost, and how soon a session actor goes on that is killed."""
