"""Sets of buckets as bits: what the master packs, servers unpack as masks, and the other way round."""

import numpy as np
import pytest

from elasticdl.ps.core.array_bodies import mask_of, pack, unpack
from elasticdl.ps.core.buckets import BUCKETS, bucket_bits, buckets_in


@pytest.mark.parametrize("buckets", [set(), {0}, {7, 8, 255}, set(range(BUCKETS))], ids=len)
def test_bits_equal_the_packed_mask(buckets: set[int]) -> None:
    assert bucket_bits(buckets) == pack(mask_of(buckets))
    assert buckets_in(bucket_bits(buckets)) == buckets
    assert set(np.flatnonzero(unpack(bucket_bits(buckets)))) == buckets


def test_no_bits_are_all_buckets() -> None:
    assert buckets_in(b"") == set(range(BUCKETS))
