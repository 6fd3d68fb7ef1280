"""Questions about a run: do the texts follow one law, and where do two lanes part?"""
