"""User tools: folders below FORGE_HOME/tools that people write, agents forge and anybody imports.

One thought per module: what a folder is (`manifest`, `folder`, `registry`), what is known of it (`book`), how it is
made ready (`build`), proven (`testing`), trusted (`card`, `promotion`), run (`running`), and passed on (`sharing`).
Every run takes the one path: a user tool reaches it as a Tool like any other (`tool`).
"""
