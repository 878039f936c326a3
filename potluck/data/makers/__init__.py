"""How true classes become what a site observes: one module for each kind of weak label.

The modules are imported by name (`from potluck.data.makers import bags, candidates`), as their
functions read best with it: `candidates.uniform`, `noise.symmetric`.
"""
