"""The shop's own tool."""


def note(text: str) -> str:
    """Write down a line."""
    with open("/workspace/notes.txt", "a") as file:
        file.write(f"{text}\n")
    return f"noted: {text}"
