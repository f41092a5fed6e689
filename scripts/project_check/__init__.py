"""The rules of this project, each a function from parsed modules to the lines that say what is broken."""
