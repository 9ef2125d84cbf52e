"""What is wrong with a configuration or a data provider is said with its line and the nearest name."""

from __future__ import annotations

from pathlib import Path

import paddle
import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.helpers import _NEAREST, names
from elasticdl.paddle_compat.config.loader import is_fleet_script, load_configuration, load_provider
from elasticdl.paddle_compat.config.program import build_program
from elasticdl.paddle_compat.config.provider import (
    InputType,
    dense_vector,
    integer_value,
    integer_value_sequence,
    slots_of,
)

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


ACTIVATED = "h = fc_layer(x, size=4)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fc_layer(x, sise=2)", "unexpected keyword argument 'sise'"),
        ("pooling_layer(x, poling_type=MaxPooling())", r"no option poling_type. Did you mean pooling_type\?"),
        ("pooling_layer(x, bias_attr=True)", "pooling_layer: bias_attr=True is not supported: omit it"),
        ("pooling_layer(x, stride=5)", "pooling_layer: stride=5 is not supported"),
        ("first_seq(x, stride=5)", "first_seq: stride=5 is not supported"),
        ("last_seq(x, layer_attr=ExtraAttr(drop_rate=0.5))", "last_seq: layer_attr=.* is not supported"),
        ("concat_layer([x, x], bias_attr=ParamAttr())", "concat_layer: bias_attr=.* is not supported"),
        ("expand_layer(x, x, bias_attr=True)", "expand_layer: bias_attr=True is not supported"),
        ("cos_sim(x, x, size=3)", "cos_sim: size=3 is not supported"),
        ("context_projection(x, 3, padding_attr=ParamAttr())", "context_projection: padding_attr=.* not supported"),
        ("dotmul_projection(x, scale=2)", "unexpected keyword argument 'scale'"),
        ("sequence_conv_pool(x, 3, 4, context_proj_param_attr=True)", "padding_attr=True is not supported"),
        ("sequence_conv_pool(x, 3, 4, pool_bias_attr=True)", "bias_attr=True is not supported"),
        ("simple_lstm(x, 4, inner_param_attr=ParamAttr())", "simple_lstm: inner_param_attr=.* is not supported"),
        ("simple_lstm(x, 4, act=ReluActivation())", r"no act=ReluActivation\(\): it is TanhActivation"),
        ("simple_gru(x, 4, revers=True)", r"simple_gru has no option revers. Did you mean reverse\?"),
        ("bidirectional_lstm(x, 4, bwd_act=ReluActivation())", r"bidirectional_lstm has no bwd_act=ReluActivation\(\)"),
        ("lstmemory(h, revers=True)", r"lstmemory has no option revers. Did you mean reverse\?"),
        ("grumemory(fc_layer(x, size=3), biass_attr=False)", r"grumemory .* Did you mean bias_attr\?"),
        ("classification_cost(h, x, wieght=x)", r"no option wieght. Did you mean weight\?"),
        ("sum_cost(h, coef=2.0)", r"sum_cost has no option coef. Did you mean coeff\?"),
        ("ParamAttr(initial_max=0.1)", "both initial_max and initial_min"),
        ("ParamAttr(momentum=0.1)", "momentum of single parameters"),
        ("ParamAttr(l1_rate=0.1, l2_rate=0.1)", "l1_rate or l2_rate"),
        ("ExtraAttr(error_clipping_threshold=1.0)", "error_clipping_threshold is not supported"),
        ("AdaGradOptimizer(rho=0.9)", "unexpected keyword argument 'rho'"),
        ("settings(batch_size=1, learning_rte=1.0)", r"no option learning_rte. Did you mean learning_rate\?"),
        ("settings(batch_size=0)", "batch_size=0 is not a number above 0"),
        ("settings(batch_size=1, regularization=0.1)", "takes one L1Regularization or L2Regularization, not 0.1"),
        ("settings(batch_size=1, learning_method='adam')", "an optimizer such as AdamOptimizer"),
        ("fc_layer(x, size=3, name='same')\n" * 2, "config.py:5: Two layers have the name same"),
        ("raise SystemExit", "config.py:4: exits with None"),
        ("import sys\nsys.exit(3)", "config.py:5: exits with 3"),
        (
            "from paddle.trainer.PyDataProvider2 import *\nprovider(should_shufle=False)",
            r"provider has no option should_shufle. Did you mean should_shuffle\?",
        ),
    ],
)  # fmt: skip
def test_option_that_would_have_no_effect_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, ACTIVATED + text)


def test_options_at_their_defaults_are_accepted(tmp_path: Path) -> None:
    load(
        tmp_path,
        """
settings(batch_size=8, learning_rate_schedule="poly", learning_rate_decay_a=0.0, model_average=None)
s = data_layer("s", 8, depth=1)
lstm = lstmemory(s, act=TanhActivation(), gate_act=SigmoidActivation(), state_act=TanhActivation())
pooled = pooling_layer(lstm, bias_attr=False, stride=-1, layer_attr=ExtraAttr(device=0))
conv = sequence_conv_pool(s, 3, 4, context_proj_param_attr=False, fc_attr=ExtraAttr(drop_rate=0.5))
out = fc_layer([pooled, conv, bidirectional_lstm(s, 4, concat_act=LinearActivation())], size=2)
outputs(classification_cost(out, data_layer("label", 2), evaluator=classification_error_evaluator, coeff=0.5))
""",
    )


def test_settings_without_effect_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(tmp_path, "settings(batch_size=8, learning_rate_decay_a=0.5)\noutputs(sum_cost(x))")
    assert "settings: learning_rate_decay_a=0.5 has no effect" in caplog.text


SIZES = {
    "x": dense_vector(3),
    "one": dense_vector(1),
    "id": integer_value(5),
    "ids": integer_value_sequence(3),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("square_error_cost(x, one)", r"\(cost\) takes inputs of size 3, and one has 1"),
        ("square_error_cost(x, id)", "needs a label of type dense_vector"),
        ("multi_binary_label_cross_entropy(x, one)", "takes inputs of size 3, and one has 1"),
        ("classification_cost(x, id)", "labels of 5 classes, and its input has 3 values"),
        ("classification_cost(x, ids)", "both are sequences, or neither"),
        ("sum_cost(fc_layer([x, ids], size=1))", "inputs that are sequences and others that are not"),
        ("sum_cost(concat_layer([x, embedding_layer(ids, 2)]))", "inputs that are sequences and others that are not"),
        ("classification_cost(id, id)", "takes no ids"),
        ("square_error_cost(x, x, weight=x)", "takes inputs of size 1, and one has 3"),
        ("sum_cost(addto_layer([x, one]))", "takes inputs of size 3, and one has 1"),
        ("sum_cost(scaling_layer(x, weight=x))", "takes inputs of size 1, and one has 3"),
        ("sum_cost(interpolation_layer([x, one], weight=one))", "takes inputs of size 3, and one has 1"),
        ("sum_cost(cos_sim(x, embedding_layer(ids, 3)))", "inputs that are sequences and others that are not"),
        ("sum_cost(scaling_layer(embedding_layer(ids, 3), one))", "inputs that are sequences and others"),
        ("sum_cost(cos_sim(x, one))", "takes inputs of size 3, and one has 1"),
        ("sum_cost(mixed_layer(size=2, input=identity_projection(x)))", "takes 2 values from 0 on, of 3"),
        ("sum_cost(mixed_layer(size=2, input=identity_projection(x, offset=2)))", "takes 2 values from 2 on, of 3"),
        ("sum_cost(mixed_layer(size=2, input=dotmul_projection(one)))", "takes inputs of size 2, and one has 1"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("static_mode")
def test_sizes_that_would_be_repeated_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        layers = "".join(
            f"{name} = data_layer('{name}', {kind.dim})\n" for name, kind in SIZES.items() if name != "x"
        )
        config = tmp_path / "config.py"
        config.write_text(f"{HEAD}{layers}outputs({text})")
        with pytest.raises(UserError, match=message):
            build_program(load_configuration(config), SIZES)


@pytest.mark.parametrize(
    ("size", "kind", "message"),
    [
        (2, dense_vector(3), "the size 2, and its slot of the data provider 3"),
        (4, dense_vector(3), "the size 4, and its slot of the data provider 3"),
        (2, integer_value(3), "the size 2, and its slot of the data provider 3"),
        (4, integer_value(3), ""),
    ],
)
@pytest.mark.usefixtures("static_mode")
def test_data_layer_of_another_size_than_its_slot_is_refused(
    tmp_path: Path, size: int, kind: InputType, message: str
) -> None:
    config = tmp_path / "config.py"
    config.write_text(f"{HEAD}d = data_layer('d', {size})\noutputs(sum_cost(fc_layer([x, d], size=1)))")
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        configuration, slots = load_configuration(config), {"x": dense_vector(3), "d": kind}
        if message:
            with pytest.raises(UserError, match=message):
                build_program(configuration, slots)
        else:
            build_program(configuration, slots)


ORDER = "from paddle.trainer_config_helpers import *\nlabel, word = data_layer('label', 2), data_layer('word', 2)\n"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("", ["word", "label"]),
        ("inputs(label, word)\n", ["label", "word"]),
        ("inputs([word, label, data_layer('more', 1)])\n", ["word", "label", "more"]),
    ],
)
def test_slots_in_a_list_are_in_the_order_of_the_inputs(tmp_path: Path, text: str, order: list[str]) -> None:
    config = tmp_path / "config.py"
    config.write_text(f"{ORDER}{text}outputs(classification_cost(fc_layer(word, size=2), label))")
    assert [each.name for each in load_configuration(config).inputs] == order


def test_input_that_is_left_out_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(f"{ORDER}inputs(word)\noutputs(classification_cost(fc_layer(word, size=2), label))")
    with pytest.raises(UserError, match="leaves out label"):
        _ = load_configuration(config).inputs


@pytest.mark.usefixtures("static_mode")
def test_layer_that_paddle_refuses_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(f"{HEAD}outputs(sum_cost(fc_layer(x, size=2, act=5, name='h')))")
    with (
        paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()),
        pytest.raises(UserError, match=r"layer h \(fc\) does not fit its inputs: .*'apply'"),
    ):
        build_program(load_configuration(config), {"x": dense_vector(3)})


@pytest.mark.usefixtures("static_mode")
def test_message_of_paddle_is_shown_without_its_call_stack(tmp_path: Path) -> None:
    config = tmp_path / "config.py"
    config.write_text(f"{HEAD}outputs(sum_cost(fc_layer(x, size=-2, name='h')))")
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        with pytest.raises(UserError, match="The layer h") as caught:
            build_program(load_configuration(config), {"x": dense_vector(3)})
        assert "Traceback" not in caught.value.message
        assert "Call Stack" not in caught.value.message
