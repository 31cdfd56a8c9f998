"""What servers say that they offer: fetched raw, checked one by one, named, kept."""
