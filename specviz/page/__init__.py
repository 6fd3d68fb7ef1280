"""The page, served by Gradio in server mode: it draws traces and decodes nothing."""
