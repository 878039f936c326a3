"""The same study over a network, on Flower: coordinator, sites, and what passes between them.

    keys.py         a certificate authority, the server's certificate, a key pair per site
    coordinator.py  starts and supervises what the coordinator needs
    superlink.py    Flower's SuperLink, with its control plane closed to other machines
    server_app.py   the coordinator's program: gathers the sites, then runs the strategy
    gathering.py    the handshake before training
    strategy.py     the round as a Flower strategy
    grid.py         Flower's grid, asking for replies more often
    declaration.py  what a site says of itself, and how the coordinator then knows it
    terms.py        what the coordinator tells a site with every message
    wire.py         messages as Flower records
    client_app.py   a site's program: one message, one answer
    memory.py       a site's own disk: its data as it was checked, its state after each round
    joining.py      starts and supervises what a site needs

Flower types appear nowhere else. Importing this package imports neither Flower nor PyTorch.
"""
