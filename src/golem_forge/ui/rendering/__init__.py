"""Events as styled lines of text, for any UI that shows text: `lines` says what a line is, the rest makes them.

Everything that a model, a tool or a file wrote passes `core.visible` here, so no line can steer a terminal.
"""
