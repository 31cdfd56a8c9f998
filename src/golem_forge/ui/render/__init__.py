"""Events as styled lines of text, for every UI that shows text. `lines` defines a line; the other modules make them.

Everything that a model, a tool or a file wrote is escaped here, so no line can control a terminal.
"""
