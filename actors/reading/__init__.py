"""Reading sessions, whoever owns them: lists, pages, walks, what a model is to see, what counts, what comes live."""
