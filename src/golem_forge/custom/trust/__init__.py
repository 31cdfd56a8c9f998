"""From a folder to a tool that is offered: where it stands, what a person is shown, the steps in between."""
