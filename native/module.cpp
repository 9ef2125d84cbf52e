// The Python interface: checks types and shapes of arrays, and releases the interpreter lock during computations.
// Messages for users are made in Python; exceptions here are mistakes of the caller.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "duplicates.h"
#include "halves.h"
#include "hashing.h"
#include "initializers.h"
#include "memory.h"
#include "rules.h"
#include "table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticdl {
namespace {

using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats3 = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using AnyIn = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::c_contig, nb::device::cpu>;

void demand(bool holds, const char* otherwise) {
  if (!holds) throw nb::value_error(otherwise);
}

// Calls with a pointer of the type that the array has. uint16 stands for bfloat16, which NumPy does not know.
template <class Array, class Use>
auto with_type(const Array& array, Use use) {
  using Void = std::conditional_t<std::is_same_v<Array, AnyIn>, const void, void>;
  Void* data = array.data();
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<float>()) {
    return use(static_cast<std::conditional_t<std::is_const_v<Void>, const float, float>*>(data));
  }
  if (type.code == std::uint8_t(nb::dlpack::dtype_code::Float) && type.bits == 16) {
    return use(static_cast<std::conditional_t<std::is_const_v<Void>, const Half, Half>*>(data));
  }
  if (type == nb::dtype<std::uint16_t>()) {
    return use(static_cast<std::conditional_t<std::is_const_v<Void>, const Brain, Brain>*>(data));
  }
  throw nb::type_error("numbers are of float32, float16, or uint16 for bfloat16");
}

template <class T>
nb::object array_of(std::vector<T>&& numbers, std::initializer_list<std::size_t> shape) {
  auto* kept = new std::vector<T>(std::move(numbers));
  nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape, owner));
}

template <class T>
nb::object array_of(std::unique_ptr<T[]>&& numbers, std::size_t n) {
  T* kept = numbers.release();
  nb::capsule owner(kept, [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, T>(kept, {n}, owner));
}

// -- optimizers --------------------------------------------------------------------------------------------------

template <class T>
void apply_dense(const Rule& rule, T* value, const T* gradient, T* const* slots, std::size_t n, double learning_rate,
                 std::uint64_t step, const Preparation& preparation) {
  rule.update(value, gradient, slots, n, learning_rate, rule.factors<T>(step), preparation);
}

// Computed in float32, a block at a time.
void apply_halves(const Rule& rule, Half* value, const Half* gradient, Half* const* slots, std::size_t n,
                  double learning_rate, std::uint64_t step, const Preparation& preparation) {
  constexpr std::size_t block = 1024;
  const std::size_t count = rule.slot_names().size();
  std::vector<float> wide((2 + count) * block);
  float* wide_slots[Rule::kMostSlots];
  for (std::size_t slot = 0; slot < count; ++slot) wide_slots[slot] = wide.data() + (2 + slot) * block;
  Preparation rest = preparation;
  if (rest.clip_norm > 0) {
    double norm = 0;
    for (std::size_t i = 0; i < n; ++i) norm += double(widen(gradient[i])) * double(widen(gradient[i]));
    norm = std::sqrt(norm) * std::fabs(rest.scale);
    if (norm > rest.clip_norm) rest.scale *= rest.clip_norm / norm;
    rest.clip_norm = 0;
  }
  const StepFactors factors = rule.factors<float>(step);
  for (std::size_t start = 0; start < n; start += block) {
    const std::size_t size = std::min(block, n - start);
    for (std::size_t i = 0; i < size; ++i) {
      wide[i] = widen(value[start + i]);
      wide[block + i] = widen(gradient[start + i]);
      for (std::size_t slot = 0; slot < count; ++slot) wide_slots[slot][i] = widen(slots[slot][start + i]);
    }
    rule.update(wide.data(), wide.data() + block, wide_slots, size, learning_rate, factors, rest);
    for (std::size_t i = 0; i < size; ++i) {
      narrow(wide[i], value + start + i);
      for (std::size_t slot = 0; slot < count; ++slot) narrow(wide_slots[slot][i], slots[slot] + start + i);
    }
  }
}

template <class T>
std::vector<T*> pointers(const std::vector<AnyOut>& slots) {
  std::vector<T*> found(Rule::kMostSlots, nullptr);
  for (std::size_t slot = 0; slot < slots.size(); ++slot) found[slot] = static_cast<T*>(slots[slot].data());
  return found;
}

void apply(const Rule& rule, AnyOut value, AnyIn gradient, const std::vector<AnyOut>& slots, double learning_rate,
           std::uint64_t step, double scale, double clip_norm, double clip_value) {
  const std::size_t n = value.size();
  demand(gradient.size() == n && gradient.dtype() == value.dtype(), "a gradient is like its parameter");
  demand(slots.size() == rule.slot_names().size(), "another optimizer has so many slots");
  for (const AnyOut& slot : slots)
    demand(slot.size() == n && slot.dtype() == value.dtype(), "slots are like their parameter");
  const Preparation preparation{scale, clip_norm, clip_value};
  const nb::dlpack::dtype type = value.dtype();
  if (type == nb::dtype<float>()) {
    nb::gil_scoped_release released;
    apply_dense(rule, static_cast<float*>(value.data()), static_cast<const float*>(gradient.data()),
                pointers<float>(slots).data(), n, learning_rate, step, preparation);
  } else if (type == nb::dtype<double>()) {
    nb::gil_scoped_release released;
    apply_dense(rule, static_cast<double*>(value.data()), static_cast<const double*>(gradient.data()),
                pointers<double>(slots).data(), n, learning_rate, step, preparation);
  } else if (type.code == std::uint8_t(nb::dlpack::dtype_code::Float) && type.bits == 16) {
    nb::gil_scoped_release released;
    apply_halves(rule, static_cast<Half*>(value.data()), static_cast<const Half*>(gradient.data()),
                 pointers<Half>(slots).data(), n, learning_rate, step, preparation);
  } else {
    throw nb::type_error("only floating-point parameters can be trained");
  }
}

std::size_t not_finite(AnyIn array) {
  const nb::dlpack::dtype type = array.dtype();
  const std::size_t n = array.size();
  if (type == nb::dtype<double>()) {
    nb::gil_scoped_release released;
    return count_not_finite(static_cast<const double*>(array.data()), n);
  }
  return with_type(array, [&](const auto* numbers) {
    nb::gil_scoped_release released;
    return count_not_finite(numbers, n);
  });
}

// -- tables ------------------------------------------------------------------------------------------------------

template <class Array>
void demand_rows(const Table& table, const Ids& ids, const Array& rows) {
  demand(rows.ndim() == 2 && rows.shape(0) == ids.shape(0) && rows.shape(1) == table.width(),
         "there must be a row of the table's width for each id");
}

// `frozen` 0: the present table.
Outcome gather(Table& table, Ids ids, AnyOut out, std::uint32_t step, bool create, std::uint32_t frozen) {
  demand_rows(table, ids, out);
  return with_type(out, [&](auto* rows) {
    nb::gil_scoped_release released;
    if (frozen) return table.gather_frozen(ids.data(), ids.shape(0), rows, frozen);
    return table.gather(ids.data(), ids.shape(0), rows, step, create);
  });
}

Outcome update(Table& table, Ids ids, AnyIn gradients, double learning_rate, std::uint32_t step, double scale,
               double clip_norm, double clip_value, bool unique, bool finite) {
  demand_rows(table, ids, gradients);
  return with_type(gradients, [&](const auto* rows) {
    nb::gil_scoped_release released;
    return table.update(ids.data(), ids.shape(0), rows, learning_rate, step, Preparation{scale, clip_norm, clip_value},
                        unique, finite);
  });
}

Outcome put(Table& table, Ids ids, Floats values, std::optional<Floats3> slots, std::optional<Numbers> steps,
            std::optional<Numbers> seen) {
  const std::size_t n = ids.shape(0);
  demand_rows(table, ids, values);
  demand(!slots || (slots->shape(0) == n && slots->shape(1) == table.layout().slots && slots->shape(2) == table.width()),
         "slots are rows, slots, columns");
  demand(!steps || steps->shape(0) == n, "there must be a number of steps for each id");
  demand(!seen || seen->shape(0) == n, "there must be a step of the last sight for each id");
  nb::gil_scoped_release released;
  return table.put(ids.data(), n, values.data(), slots ? slots->data() : nullptr, steps ? steps->data() : nullptr,
                   seen ? seen->data() : nullptr);
}

nb::dict take(Table& table, Ids ids) {
  const std::size_t n = ids.shape(0), width = table.width(), slots = table.layout().slots;
  std::vector<float> values(n * width), all_slots(n * slots * width);
  std::vector<std::uint32_t> steps(n);
  std::unique_ptr<bool[]> present(new bool[n]());
  {
    nb::gil_scoped_release released;
    table.take(ids.data(), n, values.data(), all_slots.data(), steps.data(), present.get());
  }
  nb::dict found;
  found["values"] = array_of(std::move(values), {n, width});
  found["slots"] = array_of(std::move(all_slots), {n, slots, width});
  found["steps"] = array_of(std::move(steps), {n});
  found["present"] = array_of(std::move(present), n);
  return found;
}

void put_waiting(Table& table, Ids ids, Numbers counts, Numbers seen) {
  demand(counts.shape(0) == ids.shape(0) && seen.shape(0) == ids.shape(0), "arrays are of one length");
  nb::gil_scoped_release released;
  table.put_waiting(ids.data(), ids.shape(0), counts.data(), seen.data());
}

nb::dict arrays_of(Rows rows, const Table& table) {
  const std::size_t n = rows.ids.size(), waiting = rows.waiting_ids.size(), forgotten = rows.forgotten.size();
  nb::dict found;
  found["complete"] = rows.complete;
  found["ids"] = array_of(std::move(rows.ids), {n});
  found["values"] = array_of(std::move(rows.values), {n, table.width()});
  found["slots"] = array_of(std::move(rows.slots), {n, table.layout().slots, table.width()});
  if (table.layout().counts_steps) found["steps"] = array_of(std::move(rows.steps), {n});
  if (table.layout().tracks_seen) found["seen"] = array_of(std::move(rows.seen), {n});
  found["forgotten"] = array_of(std::move(rows.forgotten), {forgotten});
  found["waiting_ids"] = array_of(std::move(rows.waiting_ids), {waiting});
  found["waiting_counts"] = array_of(std::move(rows.waiting_counts), {waiting});
  found["waiting_seen"] = array_of(std::move(rows.waiting_seen), {waiting});
  return found;
}

nb::dict take_copy(Table& table, std::uint32_t bucket, std::uint32_t frozen, std::uint32_t since) {
  Rows rows;
  {
    nb::gil_scoped_release released;
    rows = table.take_copy(bucket, frozen, since);
  }
  return arrays_of(std::move(rows), table);
}

nb::dict take_part(Table& table, std::uint32_t bucket, std::uint32_t part, std::uint32_t parts) {
  Rows rows;
  {
    nb::gil_scoped_release released;
    rows = table.take_part(bucket, part, parts);
  }
  return arrays_of(std::move(rows), table);
}

std::size_t forget(Table& table, std::uint32_t bucket, Ids ids) {
  nb::gil_scoped_release released;
  return table.forget(bucket, ids.data(), ids.shape(0));
}

nb::object buckets_of(Ids ids, std::uint32_t buckets) {
  demand(buckets > 0, "there must be a bucket");
  std::vector<std::uint32_t> found(ids.shape(0));
  {
    nb::gil_scoped_release released;
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = bucket_of(hash_of(ids.data()[i]), buckets);
  }
  const std::size_t n = found.size();
  return array_of(std::move(found), {n});
}

nb::object parts_of(Ids ids, std::uint32_t parts) {
  demand(parts > 0 && parts <= kTags, "from 1 to 256 parts");
  std::vector<std::uint32_t> found(ids.shape(0));
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = part_of(tag_of(hash_of(ids.data()[i])), parts);
  const std::size_t n = found.size();
  return array_of(std::move(found), {n});
}

// -- duplicates ----------------------------------------------------------------------------------------------------

nb::tuple unique(Ids ids, std::uint32_t buckets) {
  demand(buckets > 0, "there must be a bucket");
  const std::size_t n = ids.shape(0);
  std::unique_ptr<std::int64_t[]> inverse(new std::int64_t[n]), different;
  std::size_t count;
  {
    nb::gil_scoped_release released;
    std::unique_ptr<std::int64_t[]> room(new std::int64_t[n + 1]);
    room[0] = 0;
    count = find_unique(ids.data(), n, buckets, room.get() + 1, inverse.get());
    // The returned array has the exact length.
    different.reset(new std::int64_t[count]);
    std::copy_n(room.get() + 1, count, different.get());
  }
  return nb::make_tuple(array_of(std::move(different), count), array_of(std::move(inverse), n));
}

void sum_by(Ids inverse, AnyIn rows, nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> sums) {
  demand(rows.ndim() == 2 && rows.shape(0) == inverse.shape(0) && rows.shape(1) == sums.shape(1),
         "there must be a row of the sums' width for each number");
  with_type(rows, [&](const auto* numbers) {
    nb::gil_scoped_release released;
    sum_rows(inverse.data(), numbers, inverse.shape(0), sums.shape(1), sums.data(), sums.shape(0));
  });
}

void spread(nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu> rows, Ids inverse,
            nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> out) {
  demand(out.shape(0) == inverse.shape(0) && out.shape(1) == rows.shape(1),
         "there must be room for a row of that width for each number");
  nb::gil_scoped_release released;
  spread_rows(inverse.data(), rows.data(), inverse.shape(0), rows.shape(1), rows.shape(0), out.data());
}

// -- transport types -----------------------------------------------------------------------------------------------

void convert(AnyIn from, AnyOut to) {
  demand(from.size() == to.size(), "both arrays must be of one size");
  const std::size_t n = from.size();
  with_type(from, [&](const auto* in) {
    with_type(to, [&](auto* out) {
      nb::gil_scoped_release released;
      for (std::size_t i = 0; i < n; ++i) narrow(widen(in[i]), out + i);
    });
  });
}

}  // namespace
}  // namespace elasticdl

NB_MODULE(_kernels, m) {
  using namespace elasticdl;

  nb::class_<Rule>(m, "Rule")
      .def(nb::init<const std::string&, const std::string&, const std::map<std::string, double>&>(), "flavor"_a,
           "name"_a, "options"_a)
      .def(nb::init<const std::vector<std::string>&, const std::vector<double>&>(), "slot_names"_a, "slot_initial"_a)
      .def_prop_ro("slot_names", &Rule::slot_names)
      .def_prop_ro("slot_initial", &Rule::slot_initial)
      .def_prop_ro("counts_steps", &Rule::counts_steps)
      .def("apply", &apply, "value"_a.noconvert(), "gradient"_a.noconvert(), "slots"_a.noconvert(), "learning_rate"_a,
           "step"_a, "scale"_a = 1.0, "clip_norm"_a = 0.0, "clip_value"_a = 0.0);

  nb::class_<Budget>(m, "Budget")
      .def(nb::init<std::size_t>(), "limit"_a = 0)
      .def_prop_ro("limit", &Budget::limit)
      .def_prop_ro("used", &Budget::used);

  nb::class_<Initializer>(m, "Initializer")
      .def(nb::init<const std::string&, double, double, std::uint64_t, const std::string&>(), "kind"_a, "a"_a, "b"_a,
           "seed"_a, "table"_a);

  nb::class_<Outcome>(m, "Outcome")
      .def_ro("found", &Outcome::found)
      .def_ro("created", &Outcome::created)
      .def_ro("waiting", &Outcome::waiting)
      .def_ro("refused", &Outcome::refused)
      .def_ro("absent", &Outcome::absent)
      .def_ro("not_finite", &Outcome::not_finite);

  nb::class_<Table>(m, "Table")
      .def(nb::init<std::size_t, std::uint32_t, std::shared_ptr<const Rule>, const Initializer&, std::uint32_t, bool,
                    std::shared_ptr<Budget>>(),
           nb::kw_only(), "width"_a, "buckets"_a, "rule"_a, "initializer"_a, "admit_after"_a, "tracks_seen"_a,
           "budget"_a)
      .def("__len__", &Table::rows)
      .def_prop_ro("width", &Table::width)
      .def_prop_ro("buckets", &Table::buckets)
      .def_prop_ro("row_bytes", &Table::row_bytes)
      .def("bucket_rows", &Table::bucket_rows, "bucket"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("bucket_bytes", &Table::bucket_bytes, "bucket"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("copied_bytes", &Table::copied_bytes)
      .def_prop_ro("spare_bytes", &Table::spare_bytes)
      .def("gather", &gather, "ids"_a.noconvert(), "out"_a.noconvert(), "step"_a, "create"_a, "frozen"_a = 0)
      .def("update", &update, "ids"_a.noconvert(), "gradients"_a.noconvert(), "learning_rate"_a, "step"_a,
           "scale"_a = 1.0, "clip_norm"_a = 0.0, "clip_value"_a = 0.0, "unique"_a = false, "finite"_a = false)
      .def("put", &put, "ids"_a.noconvert(), "values"_a.noconvert(), "slots"_a.noconvert().none(),
           "steps"_a.noconvert().none(), "seen"_a.noconvert().none())
      .def("take", &take, "ids"_a.noconvert())
      .def("expect_rows", &Table::expect_rows, "rows"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("put_waiting", &put_waiting, "ids"_a.noconvert(), "counts"_a.noconvert(), "seen"_a.noconvert())
      .def("forget_waiting", &Table::forget_waiting, "bucket"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("forget", &forget, "bucket"_a, "ids"_a.noconvert())
      .def("freeze", &Table::freeze, "mark"_a = false, nb::call_guard<nb::gil_scoped_release>())
      .def("release", &Table::release, "bucket"_a, "frozen"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("take_copy", &take_copy, "bucket"_a, "frozen"_a = 0, "since"_a = 0)
      .def("take_part", &take_part, "bucket"_a, "part"_a, "parts"_a)
      .def("clear", &Table::clear, "bucket"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("expire", &Table::expire, "bucket"_a, "before"_a, nb::call_guard<nb::gil_scoped_release>());

  m.def("buckets_of", &buckets_of, "ids"_a.noconvert(), "buckets"_a);
  m.def("parts_of", &parts_of, "ids"_a.noconvert(), "parts"_a);
  m.def("unique", &unique, "ids"_a.noconvert(), "buckets"_a);
  m.def("sum_by", &sum_by, "inverse"_a.noconvert(), "rows"_a.noconvert(), "sums"_a.noconvert());
  m.def("spread", &spread, "rows"_a.noconvert(), "inverse"_a.noconvert(), "out"_a.noconvert());
  m.def("count_not_finite", &not_finite, "array"_a.noconvert());
  m.def("convert", &convert, "source"_a.noconvert(), "target"_a.noconvert());
}
