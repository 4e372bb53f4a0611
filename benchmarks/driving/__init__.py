"""Programs that flush or exchange messages when they are told to, and how that is asked of them."""
