"""XML tool calls, for models that cannot call natively: reading them, offering tools, giving results back.

`model.py` wraps a Model so that nobody else knows; `reader.py` reads a stream, with `elements.py` (the grammar of one
call), `fences.py` (where a tag is only quoted) and `typed.py` (text to values, by schema). `catalog.py`, `examples.py`
and `writing.py` write the prompt, `results.py` what comes back.
"""
