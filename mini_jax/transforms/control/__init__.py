"""Control flow inside programs: loops and choices, each a primitive that holds the programs it runs."""
