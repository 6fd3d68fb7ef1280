"""What may stand in the place of a draft and reads the target's states: EAGLE-3 heads, a target's
own prediction layers, assistants of Gemma 4."""
