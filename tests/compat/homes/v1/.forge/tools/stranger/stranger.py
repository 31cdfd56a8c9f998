print("ran")
