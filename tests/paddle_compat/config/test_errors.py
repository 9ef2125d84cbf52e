"""What is wrong with a configuration or a data provider is said with its line and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.helpers import _NEAREST, names
from elasticdl.paddle_compat.config.loader import is_fleet_script, load_configuration, load_provider
from elasticdl.paddle_compat.config.program import build_program
from elasticdl.paddle_compat.config.provider import dense_vector, integer_value, slots_of

HEAD = "from paddle.trainer_config_helpers import *\nx = data_layer('x', 3)\n"


def load(folder: Path, text: str, args: str = "") -> None:
    config = folder / "config.py"
    config.write_text(HEAD + text)
    load_configuration(config, config_args=args)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outputs(fc_layr(x, size=2))", r"config.py:3: fc_layr is not supported. Did you mean fc_layer\?"),
        (
            "outputs(crf_layer(x))",
            "crf_layer is not supported as a layer of .* The nearest is classification_cost",
        ),
        (
            "outputs(recurrent_group(x))",
            "recurrent_group is not supported as a layer of .* nearest is lstmemory",
        ),
        ("outputs(lstmemory(x))", "lstmemory takes an input of size a multiple of 4, and x has 3"),
        ("outputs(grumemory(x, size=2))", "grumemory takes an input of size 3 × 2 = 6, and x has 3"),
        (
            "outputs(lstmemory(fc_layer(x, size=4), act=ReluActivation()))",
            r"lstmemory has no act=ReluActivation\(\): it is TanhActivation",
        ),
        ("import os\nx = os.nothing", "config.py:4: AttributeError"),
        ("from paddle.trainer_config_helpers import poling_layer", r"Did you mean pooling_layer\?"),
        ("from paddle.trainer_config_helpers.evaluators import *", "config.py:3: No module named"),
        ("import dataproviders_of_ours", "config.py:3: No module named 'dataproviders_of_ours'"),
        ("print 'cost'", r"config.py:3: Missing parentheses"),
        (
            "settings(batch_size=1, algorithm='async_sdg')",
            r"no algorithm 'async_sdg'. Did you mean async_sgd\?",
        ),
        ("", "has no outputs"),
        ("get_config_arg('size', int)", "size='big' is not of type int"),
    ],
)
def test_configuration_that_does_not_run_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, text, "size=big")


def test_arguments_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="NAME=VALUE"):
        load(tmp_path, "outputs(sum_cost(x))", "size")


def test_all_supported_names_are_known_to_configurations(tmp_path: Path) -> None:
    """Those that quick_start and recommendation use."""
    used = (
        "addto_layer bidirectional_lstm classification_cost concat_layer context_projection cos_sim cross_entropy "
        "data_layer dotmul_projection dropout_layer embedding_layer expand_layer fc_layer first_seq "
        "full_matrix_projection get_config_arg identity_projection last_seq maxid_layer mixed_layer outputs "
        "pooling_layer regression_cost sequence_conv_pool settings simple_gru simple_lstm table_projection "
        "text_conv_pool define_py_data_sources2 AdamOptimizer RMSPropOptimizer L2Regularization ParamAttr ExtraAttr"
    )
    assert set(used.split()) <= names().keys()


def test_nearest_layers_are_supported_and_stand_for_others() -> None:
    assert {*_NEAREST.values()} <= names().keys()
    assert not {*_NEAREST} & names().keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outputs(embedding_layer(x, size=2))", "needs ids, and x has none"),
        ("outputs(sum_cost(pooling_layer(x)))", "needs a sequence"),
        ("outputs(fc_layer(x, size=2))", "None of the outputs is a cost"),
        ("outputs(classification_cost(fc_layer(x, size=2), x))", "needs a label of type integer_value"),
        ("outputs(sum_cost(mixed_layer()))", "used before it has one"),
    ],
)
def test_layer_that_does_not_fit_its_input_is_named(
    tmp_path: Path, static_mode: None, text: str, message: str
) -> None:
    config = tmp_path / "config.py"
    config.write_text(HEAD + text)
    with pytest.raises(UserError, match=message):
        build_program(load_configuration(config), {"x": dense_vector(3)})


def test_provider_without_decorator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain_provider.py").write_text("def process(settings, name):\n    yield {}\n")
    config = tmp_path / "config.py"
    sources = "define_py_data_sources2('train.list', None, module='plain_provider', obj='process')"
    config.write_text(f"{HEAD}{sources}\noutputs(sum_cost(x))")
    with pytest.raises(UserError, match=r"plain_provider.process is not a data provider"):
        load_provider(load_configuration(config), config)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"x": dense_vector(3)}, "no slot label; it has x"),
        ([dense_vector(3)], "has 1 slots, and the configuration 2 data layers: x, label"),
    ],
)
def test_slots_that_do_not_fit_the_data_layers_are_named(types: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        slots_of(types, ["x", "label"])


def test_slots_in_a_list_are_in_the_order_of_the_layers() -> None:
    assert list(slots_of([integer_value(2), dense_vector(3)], ["label", "x"])) == ["label", "x"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from paddle.distributed import fleet", True),
        ("import paddle.distributed.fleet as fleet", True),
        ("from paddle.trainer_config_helpers import *", False),
    ],
)
def test_program_for_fleet_is_recognised_without_running_it(
    tmp_path: Path, text: str, expected: bool
) -> None:
    (tmp_path / "train.py").write_text(f"{text}\nraise SystemExit(1)\n")
    assert is_fleet_script(tmp_path / "train.py") is expected
