"""One store, several processes: the one that holds it listens on FILE.sock, the others attach to it there.

`listening` and `serving` are the holder's side, `attaching` and `remote` the other's; `frames`, `values` and `wire` are what both
speak. Source: api.md "Connections"; issue on the embedded broker, "STORE.sock".
"""
