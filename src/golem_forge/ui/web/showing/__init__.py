"""Events made ready for a page: Markdown to safe HTML, results by kind, everything bounded."""
