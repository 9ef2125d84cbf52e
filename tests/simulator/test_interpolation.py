"""Interpolation between scattered counts of machines and replicas."""

from __future__ import annotations

import pytest

from elasticdl.simulator.interpolation import TriangleInterpolator

GRID = [(x, y) for x in (0, 1, 2, 4) for y in (0, 1, 3)]


def value_at(points: TriangleInterpolator, x: float, y: float) -> float:
    """Interpolates the plane 2x + 3y + 1."""
    return sum(weight * (2 * key[0] + 3 * key[1] + 1) for key, weight in points.weights(x, y).items())


@pytest.mark.parametrize(("x", "y"), [(0.5, 0.5), (3, 2), (1.25, 2.9), (4, 3), (2, 0), (3.999, 0.001)])
def test_interpolation_of_a_plane_is_exact_inside(x: float, y: float) -> None:
    assert value_at(TriangleInterpolator(GRID), x, y) == pytest.approx(2 * x + 3 * y + 1)


def test_known_point_has_all_the_weight() -> None:
    assert TriangleInterpolator(GRID).weights(2, 3) == {(2, 3): 1.0}


def test_weights_sum_to_one_and_are_never_negative() -> None:
    points = TriangleInterpolator(GRID)
    for step in range(100):
        weights = points.weights(0.04 * step, 0.03 * step)
        assert sum(weights.values()) == pytest.approx(1.0)
        assert min(weights.values()) >= 0


def test_point_outside_takes_the_nearest_edge() -> None:
    assert value_at(TriangleInterpolator(GRID), 9, 1.5) == pytest.approx(2 * 4 + 3 * 1.5 + 1)


def test_surface_is_continuous_across_triangles() -> None:
    points = TriangleInterpolator([(0, 0), (0, 4), (4, 0), (4, 4), (2, 1)])
    heights = {(0, 0): 0.0, (0, 4): 1.0, (4, 0): 5.0, (4, 4): 2.0, (2, 1): 9.0}

    def height(x: float, y: float) -> float:
        return sum(weight * heights[key] for key, weight in points.weights(x, y).items())

    last = height(0, 2)
    for step in range(1, 4001):
        here = height(step * 0.001, 2)
        assert abs(here - last) < 0.02
        last = here


def test_points_on_one_line_are_interpolated_along_it() -> None:
    assert TriangleInterpolator([(1, 1), (3, 3)]).weights(2, 2) == pytest.approx({(1, 1): 0.5, (3, 3): 0.5})


def test_single_point_answers_every_query() -> None:
    assert TriangleInterpolator([(1, 4)]).weights(7, 7) == {(1, 4): 1.0}
