"""What servers may ask during a call: forms, pages, completions, roots."""
