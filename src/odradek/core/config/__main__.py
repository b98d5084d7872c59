"""Prints the documentation of all configs, as Markdown: ``python -m odradek.core.config``."""

from odradek.core.config.markdown import render_markdown

if __name__ == "__main__":
    print(render_markdown(), end="")
