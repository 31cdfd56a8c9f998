"""The REST API: operations, and the models that they take and give. `openapi` has every one, once."""
