"""Piecewise linear interpolation over scattered points of the plane.

Measured step times exist for some counts of (machines, replicas) only. Between them they are interpolated
on the Delaunay triangles of those counts, which is what the published simulator did with SciPy. SciPy is
not a dependency here, and there are about seventy points, so the triangles are found by testing every
triple against every point at once.

Points on one circle (a square of the grid) have more than one Delaunay triangulation. A fixed tiny tilt of
the lifted points picks one, so that the surface has no gaps. Outside of the points the nearest edge counts:
a query is never extrapolated.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
# Relative to coordinates of at most a few hundred: larger than rounding, smaller than any difference between
# real points.
_TILT = 1e-6
_SLACK = 1e-9


class TriangleInterpolator:
    """Weights of at most three known points for any point of the plane."""

    def __init__(self, points: list[tuple[int, int]]) -> None:
        if not points:
            raise ValueError("no points to interpolate between")
        self._points = np.array(sorted(set(points)), dtype=np.float64)
        self._keys = [(int(x), int(y)) for x, y in self._points]
        self._triangles = _delaunay(self._points)

    def weights(self, x: float, y: float) -> dict[tuple[int, int], float]:
        """Returns the points that surround (x, y) and their weights, which sum to one."""
        point = np.array([x, y], dtype=np.float64)
        exact = (round(x), round(y))
        if exact in self._keys and abs(exact[0] - x) + abs(exact[1] - y) < _SLACK:
            return {exact: 1.0}
        best: tuple[float, _Floats, tuple[int, ...]] | None = None
        for triangle in self._triangles:
            shares = _barycentric(self._points[list(triangle)], point)
            inside = float(shares.min())
            if best is None or inside > best[0]:
                best = (inside, shares, triangle)
            if inside >= -_SLACK:
                break
        if best is None or best[0] < -_SLACK:
            return self._nearest(point)
        shares = np.clip(best[1], 0.0, None)
        shares = shares / shares.sum()
        return {
            self._keys[i]: float(share) for i, share in zip(best[2], shares, strict=True) if share > _SLACK
        }

    def _nearest(self, point: _Floats) -> dict[tuple[int, int], float]:
        """Weights at the closest point of any edge between two neighbours."""
        edges = {tuple(sorted(pair)) for triangle in self._triangles for pair in combinations(triangle, 2)}
        if not edges:
            # All points are on one line, or there is only one.
            order = range(len(self._points))
            edges = set(zip(order, list(order)[1:], strict=False)) or {(0, 0)}
        found: tuple[float, int, int, float] | None = None
        for a, b in sorted(edges):
            start, end = self._points[a], self._points[b]
            length = float(((end - start) ** 2).sum())
            share = 0.0 if length == 0 else float(np.clip((point - start) @ (end - start) / length, 0.0, 1.0))
            distance = float(((start + share * (end - start) - point) ** 2).sum())
            if found is None or distance < found[0] - _SLACK:
                found = (distance, a, b, share)
        assert found is not None
        _, a, b, share = found
        weights = {self._keys[a]: 1.0 - share}
        weights[self._keys[b]] = weights.get(self._keys[b], 0.0) + share
        return {key: weight for key, weight in weights.items() if weight > _SLACK}


def _delaunay(points: _Floats) -> list[tuple[int, ...]]:
    """Returns the triangles whose circumscribed circle holds no other point."""
    count = len(points)
    if count < 3:
        return []
    triples = np.array(list(combinations(range(count), 3)))
    # A point is inside of the circle through a triangle if, lifted to x² + y², it lies below the plane
    # through it.
    noise = np.modf(np.sin(np.arange(1, count + 1) * 12.9898) * 43758.5453)[0]
    lifted = (points**2).sum(axis=1) + _TILT * noise
    a, b, c = (points[triples[:, i]] for i in range(3))
    za, zb, zc = (lifted[triples[:, i]] for i in range(3))
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    keep = np.abs(area) > _SLACK
    triples, a, b, c, za, zb, zc, area = (v[keep] for v in (triples, a, b, c, za, zb, zc, area))
    slope_x = ((zb - za) * (c[:, 1] - a[:, 1]) - (zc - za) * (b[:, 1] - a[:, 1])) / area
    slope_y = ((zc - za) * (b[:, 0] - a[:, 0]) - (zb - za) * (c[:, 0] - a[:, 0])) / area
    constant = za - slope_x * a[:, 0] - slope_y * a[:, 1]
    empty = np.ones(len(triples), dtype=bool)
    for i in range(count):
        plane = slope_x * points[i, 0] + slope_y * points[i, 1] + constant
        corner = (triples == i).any(axis=1)
        empty &= corner | (lifted[i] >= plane - _TILT * 1e-3)
    return [tuple(int(i) for i in triple) for triple in triples[empty]]


def _barycentric(corners: _Floats, point: _Floats) -> _Floats:
    matrix = np.array([corners[1] - corners[0], corners[2] - corners[0]]).T
    second, third = np.linalg.solve(matrix, point - corners[0])
    return np.array([1.0 - second - third, second, third])
