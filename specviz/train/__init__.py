"""Training of drafts and heads for a target: `python -m specviz train`."""
