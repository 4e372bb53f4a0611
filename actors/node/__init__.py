"""The node's process: one for each store. It counts who uses the store, and keeps alive what serves it."""
