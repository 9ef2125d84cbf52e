"""The layers of configurations in the old style compute what NumPy computes with the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.paddle_compat.config.provider import (
    InputType,
    dense_vector,
    dense_vector_sequence,
    integer_value,
    integer_value_sequence,
    sparse_binary_vector,
    sparse_float_vector,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 3)).astype(np.float32)
Y = RANDOM.normal(size=(4, 3)).astype(np.float32)
SHARE = RANDOM.uniform(size=(4, 1)).astype(np.float32)
LENGTHS = (3, 1, 5)
SEQUENCES = [RANDOM.normal(size=(length, 3)).astype(np.float32) for length in LENGTHS]
WORDS = [[2, 0, 5], [1], [3, 3, 4, 0, 2]]
SLOTS = {"x": dense_vector(3), "y": dense_vector(3), "share": dense_vector(1)}
SAMPLES = [{"x": x, "y": y, "share": share} for x, y, share in zip(X, Y, SHARE, strict=True)]
DATA = "x, y, share = data_layer('x', 3), data_layer('y', 3), data_layer('share', 1)\n"


def dense(compute: Any, text: str) -> Any:
    (found,) = compute(f"{DATA}{text}\noutputs(sum_cost(out), sum_cost(addto_layer([x, y])))", SLOTS, SAMPLES)
    return found


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("concat_layer([x, y])", np.concatenate([X, Y], axis=1)),
        ("addto_layer([x, y], act=ReluActivation())", np.maximum(X + Y, 0)),
        ("x + y", X + Y),
        ("slope_intercept_layer(x, slope=2.0, intercept=-1.0)", 2 * X - 1),
        ("scaling_layer(x, weight=share)", X * SHARE),
        ("interpolation_layer([x, y], weight=share)", SHARE * X + (1 - SHARE) * Y),
        ("dropout_layer(x, 0.5)", X),
        (
            "cos_sim(x, y, scale=5)",
            5 * ((X * Y).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1))[:, None],
        ),
        ("mixed_layer(input=[identity_projection(x, offset=1)], size=2)", X[:, 1:]),
    ],
)
def test_layer_without_parameters(compute: Any, layer: str, expected: Any) -> None:
    found = dense(compute, f"out = {layer}")
    out = found[next(name for name in found._fetched if name.startswith("__"))]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_fully_connected_layer_sums_its_inputs(compute: Any) -> None:
    found = dense(
        compute, "out = fc_layer([x, y], size=2, name='out', param_attr=[ParamAttr(name='own'), None])"
    )
    weights = found.parameters
    assert list(weights) == ["own", "_out.w1", "_out.wbias"]
    expected = np.tanh(X @ weights["own"] + Y @ weights["_out.w1"] + weights["_out.wbias"])
    np.testing.assert_allclose(found["out"], expected, rtol=1e-5)


def test_mixed_layer_sums_projections(compute: Any) -> None:
    found = dense(
        compute,
        "with mixed_layer(size=3, name='out', bias_attr=True) as m:\n"
        "    m += full_matrix_projection(x)\n"
        "    m += trans_full_matrix_projection(y)\n"
        "    m += dotmul_projection(y)\n"
        "    m += identity_projection(x)\n"
        "out = fc_layer(m, size=2)",
    )
    w = [found.parameters[f"_out.w{index}"] for index in range(3)]
    expected = X @ w[0] + Y @ w[1].T + Y * w[2] + X + found.parameters["_out.wbias"]
    np.testing.assert_allclose(found["out"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (integer_value(6), [[row] for row in (1, 5)], np.eye(6)[[1, 5]]),
        (sparse_binary_vector(6), [[0, 2], []], np.array([[1, 0, 1, 0, 0, 0], [0] * 6])),
        (
            sparse_float_vector(6),
            [[(1, 0.5), (4, -2.0)], [(3, 1.0)]],
            [[0, 0.5, 0, 0, -2, 0], [0, 0, 0, 1, 0, 0]],
        ),
    ],
    ids=["ids", "binary", "float"],
)
def test_fully_connected_layer_of_sparse_slots(
    compute: Any, kind: InputType, values: Any, expected: Any
) -> None:
    samples = [{"word": value[0] if kind == integer_value(6) else value} for value in values]
    (found,) = compute(
        "out = fc_layer(data_layer('word', 6), size=2, act=LinearActivation(), name='out')\noutputs(sum_cost(out))",
        {"word": kind},
        samples,
    )
    weight, bias = found.parameters["_out.w0"], found.parameters["_out.wbias"]
    np.testing.assert_allclose(
        found["out"], np.asarray(expected, np.float32) @ weight + bias, rtol=1e-5, atol=1e-6
    )


POOLINGS: dict[str, Callable[[Any], Any]] = {
    "MaxPooling": lambda rows: rows.max(0),
    "AvgPooling": lambda rows: rows.mean(0),
    "SumPooling": lambda rows: rows.sum(0),
    "SquareRootNPooling": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
}
OF_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    **{f"pooling_layer(s, pooling_type={name}())": formula for name, formula in POOLINGS.items()},
    "first_seq(s)": lambda rows: rows[0],
    "last_seq(s)": lambda rows: rows[-1],
}


@pytest.mark.parametrize("layer", OF_SEQUENCES)
def test_layer_over_a_sequence(compute: Any, layer: str) -> None:
    (found,) = compute(
        f"s = data_layer('s', 3)\nout = {layer}\noutputs(sum_cost(out))",
        {"s": dense_vector_sequence(3)},
        [{"s": rows} for rows in SEQUENCES],
    )
    out = next(found[name] for name in found._fetched if name.startswith("__"))
    np.testing.assert_allclose(out, [OF_SEQUENCES[layer](rows) for rows in SEQUENCES], rtol=1e-5, atol=1e-6)


def test_context_projection_has_zeros_beyond_the_ends(compute: Any) -> None:
    (found,) = compute(
        "s = data_layer('s', 3)\n"
        "out = mixed_layer(size=9, input=context_projection(s, context_len=3), name='out')\n"
        "outputs(sum_cost(pooling_layer(out)))",
        {"s": dense_vector_sequence(3)},
        [{"s": rows} for rows in SEQUENCES],
    )
    for rows, out in zip(SEQUENCES, found["out"], strict=True):
        padded = np.pad(rows, ((1, 1), (0, 0)))
        expected = np.concatenate([padded[:-2], padded[1:-1], padded[2:]], axis=1)
        np.testing.assert_allclose(out[: len(rows)], expected, rtol=1e-5, atol=1e-6)


def test_lstm_memory_takes_the_gates_of_the_layer_below(compute: Any) -> None:
    size = 2
    (found,) = compute(
        "s = data_layer('s', 3)\n"
        "gates = fc_layer(s, size=8, act=LinearActivation(), name='gates')\n"
        "out = lstmemory(gates, name='out')\noutputs(sum_cost(last_seq(out)))",
        {"s": dense_vector_sequence(3)},
        [{"s": rows} for rows in SEQUENCES],
    )
    weight, bias = found.parameters["_out.w0"], found.parameters["_out.wbias"]
    for gates, out in zip(found["gates"], found["out"], strict=True):
        state, cell = np.zeros(size), np.zeros(size)
        for step, expected in zip(gates, out, strict=True):
            if not expected.any():
                # Padding.
                break
            enter, keep, new, leave = np.split(step + weight @ state + bias, 4)
            cell = _sigmoid(keep) * cell + _sigmoid(enter) * np.tanh(new)
            state = _sigmoid(leave) * np.tanh(cell)
            np.testing.assert_allclose(expected, state, rtol=1e-4, atol=1e-6)
    assert {"_out.w0", "_out.wbias"} == {name for name in found.parameters if name.startswith("_out")}


def _sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize(
    "layer",
    [
        "sequence_conv_pool(words, context_len=5, hidden_size=4)",
        "last_seq(simple_lstm(words, size=4))",
        "last_seq(simple_gru(words, size=4))",
        "first_seq(lstmemory(fc_layer(words, size=8), reverse=True))",
        "last_seq(grumemory(fc_layer(words, size=6)))",
        "bidirectional_lstm(words, size=4)",
        "pooling_layer(expand_layer(last_seq(words), expand_as=words), pooling_type=SumPooling())",
        "pooling_layer(concat_layer([words, words]), pooling_type=AvgPooling())",
    ],
)
def test_padding_of_a_batch_changes_nothing(compute: Any, layer: str) -> None:
    """Sequences of several lengths in one batch give what each gives alone."""
    samples = [{"word": words} for words in WORDS]
    together, *alone = compute(
        f"words = embedding_layer(data_layer('word', 6), size=3)\nout = {layer}\n"
        "outputs(sum_cost(fc_layer(out, size=2, name='last')))",
        {"word": integer_value_sequence(6)},
        samples,
        *([sample] for sample in samples),
    )
    expected = np.concatenate([each["last"] for each in alone])
    np.testing.assert_allclose(together["last"], expected, rtol=1e-4, atol=1e-6)
    assert len({tuple(row) for row in together["last"].round(6)}) == len(WORDS)


LABELS = np.array([1, 0, 2, 1])


@pytest.mark.parametrize("weighted", [False, True])
def test_classification_cost_is_cross_entropy(compute: Any, weighted: bool) -> None:
    samples = [{**sample, "label": label} for sample, label in zip(SAMPLES, LABELS, strict=True)]
    weight = ", weight=share" if weighted else ""
    (found,) = compute(
        f"{DATA}label = data_layer('label', 3)\n"
        "out = fc_layer([x, y], size=3, act=SoftmaxActivation(), name='out')\n"
        f"outputs(classification_cost(out, label{weight}), sum_cost(slope_intercept_layer(share, slope=0.0)))",
        {**SLOTS, "label": integer_value(3)},
        samples,
    )
    costs = -np.log(found["out"][np.arange(4), LABELS]) * (SHARE[:, 0] if weighted else 1.0)
    assert float(found["cost"]) == pytest.approx(costs.mean(), rel=1e-5)


@pytest.mark.parametrize("cost", ["regression_cost", "mse_cost", "square_error_cost"])
def test_regression_cost_is_half_of_the_square(compute: Any, cost: str) -> None:
    (found,) = compute(
        f"{DATA}outputs({cost}(x, y), sum_cost(slope_intercept_layer(share, slope=0.0)))", SLOTS, SAMPLES
    )
    assert float(found["cost"]) == pytest.approx((0.5 * (X - Y) ** 2).sum(1).mean(), rel=1e-5)


def test_shared_parameter_is_one(compute: Any) -> None:
    found = dense(
        compute,
        "both = ParamAttr(name='both')\n"
        "out = concat_layer([fc_layer(x, size=2, param_attr=both, bias_attr=False),"
        " fc_layer(y, size=2, param_attr=both, bias_attr=False)], name='out')",
    )
    assert list(found.parameters) == ["both"]
    expected = np.tanh(np.concatenate([X @ found.parameters["both"], Y @ found.parameters["both"]], axis=1))
    np.testing.assert_allclose(found["out"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "cost",
    ["square_error_cost(x, y{})", "multi_binary_label_cross_entropy(h, h{})", "sum_cost(x{})"],
)
def test_cost_is_multiplied_by_its_coefficient(compute: Any, cost: str) -> None:
    text = f"{DATA}h = fc_layer(x, size=3, act=SigmoidActivation())\noutputs({{}})"
    plain, halved = (
        compute(
            text.format(f"{cost.format(coeff)}, sum_cost(concat_layer([y, share]), coeff=0.0)"),
            SLOTS,
            SAMPLES,
        )
        for coeff in ("", ", coeff=0.5")
    )
    np.testing.assert_allclose(halved[0]["cost"], 0.5 * plain[0]["cost"], rtol=1e-5)
