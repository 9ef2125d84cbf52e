"""Reviews, good or bad: logistic regression on the words that a review has."""

from paddle.trainer_config_helpers import *

with open("data/quick_start/dict.txt") as file:
    words = {line.split("\t")[0].strip(): number for number, line in enumerate(file)}

is_predict = get_config_arg("is_predict", bool, False)

define_py_data_sources2(
    train_list="data/quick_start/train.list",
    test_list="data/quick_start/test.list",
    module="dataprovider_bow",
    obj="process",
    args={"dictionary": words},
)

settings(
    batch_size=128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25,
)

word = data_layer(name="word", size=len(words))
label = data_layer(name="label", size=2)
output = fc_layer(input=word, size=2, act=SoftmaxActivation())
outputs(classification_cost(input=output, label=label))
