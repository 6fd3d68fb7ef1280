"""Training of a target and a draft on a folder of books: `python -m specviz train`."""
