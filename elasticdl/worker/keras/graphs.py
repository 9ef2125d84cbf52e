"""The computations of a batch as graphs: a training step, gradients, an evaluation, predictions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.keras import failures
from elasticdl.worker.definition import is_misfit
from elasticdl.worker.keras.errors import definition_error, describe, program_error, summary
from elasticdl.worker.keras.optimizer import KerasOptimizer

log = logging.getLogger("elasticdl.worker")

# Callbacks freeze layers by turns, a few of them; one that picks layers at random must not fill the memory.
_GRAPHS_KEPT = 16


class Step:
    """A function of tensors, made into a graph once for any number of samples; the last batch is often smaller."""

    def __init__(self, function: Callable[..., Any], *, what: str) -> None:
        self._function = tf.function(function, autograph=False, reduce_retracing=True)
        self._what = what
        self._traced = False

    def __call__(self, *batch: Any) -> Any:
        failures.clear()
        try:
            if not self._traced:
                self._function.get_concrete_function(*tf.nest.map_structure(_any_size, batch))
                self._traced = True
            return self._function(*batch)
        except UserError:
            raise
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(summary(error)) from error
        except tf.errors.OpError as error:
            if failures:
                raise failures.pop() from error
            given = ", ".join(describe(part) for part in batch)
            raise program_error(f"{self._what} failed on a batch of {given}", error) from error


class Forward:
    """The way from features to predictions, and on to the loss."""

    def __init__(self, model: Any, loss: Callable[..., Any], *, name: str) -> None:
        self._model = model
        self._name = name
        # A graph of its own, so that conditions on tensors in it work as they do in the rest of TensorFlow.
        self._loss = tf.function(loss)
        self._takes_training = getattr(model, "_call_has_training_arg", True)
        # Whether what is being computed, or made into a graph, is for training.
        self.training = False
        self.predict = Step(self.forward, what="The model")

    def build(self, features: Any, *, sample: Any) -> None:
        """Has all layers make their variables, by one of the samples, those too that only training uses: without
        computing anything with these, which would change moving averages.
        """
        self.forward(sample)
        if not all(layer.built for layer in self._model._flatten_layers()):
            # If this fails, training does too and reports why; evaluation and prediction can do without.
            with contextlib.suppress(UserError):
                tf.function(self.forward, autograph=False).get_concrete_function(features, training=True)

    def forward(self, features: Any, training: bool = False) -> Any:
        self.training = training
        try:
            if self._takes_training:
                return self._model(features, training=training)
            return self._model(features)
        except UserError:
            raise
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(summary(error)) from error
        except Exception as error:
            raise definition_error(
                f"The model {self._name} cannot be applied to features {describe(features)}", error
            ) from error

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Returns the mean of the definition's loss, plus the model's own losses."""
        if labels is None:
            raise UserError(f"The feed of {self._name} gives no labels to compute the loss with.")
        fit = f"labels {describe(labels)} and predictions {describe(predictions)}"
        try:
            value = self._loss(labels, predictions)
        except UserError:
            raise
        except Exception as error:
            cause = f"cannot take {fit}" if is_misfit(error) else f"failed: {type(error).__name__}"
            raise definition_error(f"The loss of {self._name} {cause}", error) from error
        if not tf.is_tensor(value):
            raise UserError(
                f"The loss of {self._name} returns {'nothing' if value is None else type(value).__name__}.",
                hint="It must return a tensor: one number, or one for each sample.",
            )
        mean = tf.reduce_mean(tf.cast(value, tf.float32))
        return tf.add_n([mean, *(tf.cast(one, tf.float32) for one in self._model.losses)])


class Training:
    """The graphs that update the model, or compute updates. The model and the optimizer must have been built.

    What is frozen (`trainable`) has no gradients as long as it is: callbacks may freeze layers, and let them be trained
    again. Graphs do not look at it, so each choice of what is trained has its own (`follow`).
    """

    def __init__(
        self,
        forward: Forward,
        model: Any,
        optimizer: KerasOptimizer,
        *,
        name: str,
        variables: Sequence[Any],
        handles: Sequence[Any] = (),
        elsewhere: Collection[int] = (),
        check_read: Callable[[Sequence[Any]], None] = lambda _: None,
    ) -> None:
        """`variables`: all that may be trained. `handles`: variables that stand for rows of tables, whose gradients
        take another way. `elsewhere` are the variables of these ids. `check_read` is called with those that the loss is
        computed with.
        """
        self._forward = forward
        self._model = model
        self._optimizer = optimizer
        self._name = name
        self._all = list(variables)
        self._handles = list(handles)
        self._known = {id(one) for one in [*variables, *handles]} | set(elsewhere)
        self._check_read = check_read
        # The objects that can be frozen: layers, and with Keras 3 their variables one by one.
        self._freezable = list(model._flatten_layers())
        if hasattr(tf.keras, "ops"):
            self._freezable += model.weights
        self._switches: tuple[bool, ...] | None = None
        self._made: dict[tuple[bool, ...], tuple[Step, Step, Step, Any]] = {}
        self.follow()

    def follow(self) -> None:
        """Selects, before each batch, the graphs for the present trainable variables. Raises `UserError` if one of them
        was frozen when the model was made.
        """
        switches = tuple(one.trainable for one in self._freezable)
        if switches == self._switches:
            return
        wanted = self._model.trainable_variables
        thawed = [_path(one) for one in wanted if id(one) not in self._known]
        if thawed:
            raise UserError(
                f"{', '.join(thawed)}: frozen when the model was made (trainable), and to be trained by now. What is "
                "trained is settled when the model is made.",
                hint="Let the model function return it as something that is trained, freeze it in a callback "
                "(on_train_begin), and let it be trained when its time comes.",
            )
        self._switches = switches
        self._trained = {id(one) for one in wanted}
        made = self._made.pop(switches, None)
        if made is None:
            made = (
                Step(self._train, what="Training"),
                Step(self._train_guarded, what="Training"),
                Step(self._gradients, what="Training"),
                tf.function(self._apply, autograph=False),
            )
        # The last is the one that was used last.
        self._made[switches] = made
        if len(self._made) > _GRAPHS_KEPT:
            del self._made[next(iter(self._made))]
        self.train, self.train_guarded, self.gradients, self.apply = made

    def _train(self, features: Any, labels: Any) -> Any:
        loss, step, _ = self._prepare_step(features, labels)
        step()
        return loss

    def _train_guarded(self, features: Any, labels: Any) -> Any:
        """Applies nothing, and returns NaN, if the loss or a gradient is not finite."""
        loss, step, gradients = self._prepare_step(features, labels)
        # Where losses are scaled, gradients overflow at times, and the optimizer itself then skips its step.
        watched = [] if self._scales_loss else [_values(one) for one in gradients if one is not None]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(one)) for one in [loss, *watched]])

        def apply() -> Any:
            step()
            return loss

        return tf.cond(finite, apply, lambda: tf.constant(float("nan"), loss.dtype))

    @property
    def _scales_loss(self) -> bool:
        optimizer = self._optimizer.native
        return hasattr(optimizer, "get_scaled_loss") or hasattr(optimizer, "dynamic_scale")

    def _prepare_step(self, features: Any, labels: Any) -> tuple[Any, Callable[[], Any], list[Any]]:
        """Returns the loss, what applies the gradients, and these."""
        optimizer = self._optimizer.native
        if hasattr(optimizer, "get_scaled_loss"):
            # tf.keras with half precision: small gradients would vanish, so they are made of a greater loss.
            scale, unscale = optimizer.get_scaled_loss, optimizer.get_unscaled_gradients
        else:
            # Keras 3 takes back in apply_gradients what its scale_loss does; others have nothing of the kind.
            scale, unscale = getattr(optimizer, "scale_loss", _same), _same
        loss, gradients = self._derive(features, labels, scale)
        pairs = list(zip(unscale(gradients), self._variables(), strict=True))
        return loss, lambda: optimizer.apply_gradients(pairs), gradients

    def _gradients(self, features: Any, labels: Any) -> Any:
        """Returns the gradients of all variables that may be trained. A variable that is frozen, or that the loss does
        not depend on, has None, so that Keras does not change it: by a gradient of zeros it would decay, or become
        zero.
        """
        loss, gradients = self._derive(features, labels, _same)
        self._tell_of_unused(gradients)
        known = [gradient for gradient in gradients if gradient is not None]
        if not self._handles:
            # Callbacks look at it to know the time.
            self._optimizer.native.iterations.assign_add(1)
            known = self._optimizer.clip(known)
        left = iter(known)
        found = {
            id(variable): None if gradient is None else tf.convert_to_tensor(next(left))
            for variable, gradient in zip(self._variables(), gradients, strict=True)
        }
        return loss, [found.get(id(variable)) for variable in self._all]

    def _tell_of_unused(self, gradients: list[Any]) -> None:
        """Once, when the graph is made. Where Keras applies gradients, it does so itself."""
        pairs = zip(gradients, self._variables(), strict=True)
        unused = [_path(one) for gradient, one in pairs if gradient is None]
        if unused:
            log.warning(
                "The loss of %s does not depend on %s: there is no gradient, and nothing changes them.",
                self._name,
                ", ".join(unused),
            )

    def _apply(self, gradients: list[Any]) -> None:
        """Applies the gradients of all variables that may be trained."""
        pairs = zip(gradients, self._all, strict=True)
        self._optimizer.native.apply_gradients([pair for pair in pairs if id(pair[1]) in self._trained])

    def _variables(self) -> list[Any]:
        return [one for one in self._all if id(one) in self._trained]

    def _derive(self, features: Any, labels: Any, scale: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
        variables = [*self._variables(), *self._handles]
        with tf.GradientTape() as tape:
            loss = self._forward.loss(labels, self._forward.forward(features, training=True))
            scaled = scale(loss)
        self._check_read(tape.watched_variables())
        gradients = tape.gradient(scaled, variables)
        if all(gradient is None for gradient in gradients):
            what = "the model has no parameters to train" if not variables else "no parameter has a gradient"
            raise UserError(
                f"{self._name} cannot be trained: {what}.",
                hint="The loss must be computed from the predictions, with operations of TensorFlow.",
            )
        return loss, gradients[: len(gradients) - len(self._handles)]


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _values(gradient: Any) -> Any:
    """Returns the values of an ordinary gradient, or of a gradient of some rows."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _same(value: Any) -> Any:
    return value


def _any_size(value: Any) -> Any:
    """The type of a tensor whose first axis, the samples, may have any length."""
    if not isinstance(value, tf.Tensor):
        return value
    return tf.TensorSpec([None, *value.shape[1:]] if value.shape.rank else [], value.dtype)
