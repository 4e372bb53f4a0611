"""What a flush costs, beside other ways to make events durable."""
