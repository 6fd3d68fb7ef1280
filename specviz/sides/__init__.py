"""Ways to draft, to judge, to be faster or to reach a model: each knows the core, and no other."""
