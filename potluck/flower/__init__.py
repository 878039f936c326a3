"""The same study over a network, on Flower: coordinator, sites, and what passes between them.

What passes between them:
    wire.py         messages as Flower records
    terms.py        what the coordinator tells a site with every message
    declaration.py  what a site says of itself, and how the coordinator then knows it

The coordinator's program, which Flower starts:
    server_app.py   gathers the sites, then runs the strategy
    gathering.py    the handshake before training
    assembly.py     from what sites declared to what is trained
    strategy.py     the round as a Flower strategy
    acceptance.py   whether an update that came over the network is taken
    grid.py         Flower's grid, asking for replies more often
    plan.py         what a run folder has besides

A site's program, which Flower starts for each message:
    client_app.py   one message, one answer
    memory.py       the site's own disk: its data as it was checked, its state after each round

For people:
    keys.py         a certificate authority, the server's certificate, a key pair per site
    coordinator.py  what `potluck coordinate` starts, supervises and follows
    joining.py      what `potluck join` checks, starts and supervises
    superlink.py    Flower's SuperLink, with its control plane closed to other machines
    control.py      controlling it from its own machine
    processes.py    processes that end when we do
    events.py       what happens in another process, line by line
    display.py      what people see

Flower types appear nowhere else in Potluck.
"""
