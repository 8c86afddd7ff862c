"""The model, its number formats and its files: the definition that the C++ code is checked against."""
