"""The page, here and as a Hugging Face Space: `python app.py`."""

from specviz.serve import launch, one_sentence, start_page

with one_sentence():
    worker, demo = start_page()
    if __name__ == "__main__":
        launch(demo)
