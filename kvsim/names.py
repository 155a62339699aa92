"""Names of allocators and placements, for whoever does not need the allocators themselves.

Looking up a name must not cost the import of numba.
"""

# name -> (reservation, whether paged)
ALLOCATORS = {
    "max": ("max", False),
    "pow2": ("pow2", False),
    "oracle": ("oracle", False),
    "paged": ("on-demand", True),
    "paged-max": ("max", True),
    "paged-pow2": ("pow2", True),
    "paged-oracle": ("oracle", True),
}
CONTIGUOUS = ("buddy", "first-fit", "best-fit")
