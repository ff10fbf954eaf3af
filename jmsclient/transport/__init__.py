"""The wall between the client and what carries messages: the contract of a backend, what it can do, how it is found."""
