"""Programs that flush, exchange messages or begin again when they are told to, and how that is asked of them."""
