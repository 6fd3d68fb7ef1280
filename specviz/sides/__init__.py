"""Ways to draft, to judge, to be faster or to reach a model: each imports the core and no other
side."""
