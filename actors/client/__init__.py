"""A program's way to a store's processes: finding them, asking, keeping what isn't acknowledged, finding them again."""
