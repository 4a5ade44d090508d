"""The controls of the pages, one module a page."""
