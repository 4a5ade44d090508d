"""B into the coordinates of A: matchings, one pass of stages, sweeps, a refinement."""
