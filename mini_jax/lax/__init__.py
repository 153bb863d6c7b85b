"""lax: the primitives and the functions that apply them, strict about shapes and dtypes."""
