"""Libraries that turnkeeper is measured beside: one module each, loaded only where the library is installed."""
