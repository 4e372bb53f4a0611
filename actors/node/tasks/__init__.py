"""What the node does for tasks: it has them begun, follows and stops each, records what becomes of it, and adopts."""
