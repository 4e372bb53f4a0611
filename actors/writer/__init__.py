"""The writer's process: the only one that writes a store. What it takes from its clients, decides and answers."""
