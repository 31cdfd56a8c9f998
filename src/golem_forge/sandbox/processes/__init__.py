"""Starting and ending child processes: one place, whatever walls stand around them."""
