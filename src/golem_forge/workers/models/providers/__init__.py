"""Real models, through pydantic-ai's model classes: the only folder that imports pydantic_ai (a second of start-up).

`opening` makes the client of a provider, `model` asks it, `sending` puts our requests in the library's words,
`receiving` its responses in ours, `failing` its errors. Its Agent is not used and no tool is handed to it to execute.
"""
