"""Tools: the Tool itself, its schema and checks, the catalog, forms and options, results, search and deferral."""
