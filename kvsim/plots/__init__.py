"""Results as pictures, with matplotlib; one subject a module."""
