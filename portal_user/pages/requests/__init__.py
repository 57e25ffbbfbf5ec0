"""Shows requests on the user's pages: the list, one of them with its parts, the form, and the offers beside it."""
