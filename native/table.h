// A table: rows of float32 with optimizer slots, by id, made when first seen.
//
// Ids are spread over a fixed number of buckets, and every few buckets have a lock of their own: threads that look up
// and threads that update meet only where they want the same ones at the same moment, and then do others first. A call
// sorts its ids by bucket, so that a lock is taken once for many ids and the index of a bucket is in the processor's
// cache while it is used; rows are fetched from memory some ahead of their use.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bucket.h"
#include "halves.h"
#include "hashing.h"
#include "initializers.h"
#include "memory.h"
#include "rules.h"

namespace elasticdl {

// What became of the ids of a call.
struct Outcome {
  std::size_t found = 0;       // had a row
  std::size_t created = 0;     // got a row
  std::size_t waiting = 0;     // not seen often enough for a row yet
  std::size_t refused = 0;     // would have got a row, if there were memory
  std::size_t absent = 0;      // no row, and none was to be made
  std::size_t not_finite = 0;  // numbers in gradients; if there are any, nothing was changed
};

// The rows of a bucket, as arrays.
struct Rows {
  std::vector<std::int64_t> ids;
  std::vector<float> values, slots;
  std::vector<std::uint32_t> steps, seen;
  std::vector<std::int64_t> waiting_ids;
  std::vector<std::uint32_t> waiting_counts, waiting_seen;
};

class Table {
 public:
  Table(std::size_t width, std::uint32_t buckets, std::shared_ptr<const Rule> rule, const Initializer& initializer,
        std::uint32_t admit_after, bool tracks_seen, std::shared_ptr<Budget> budget)
      : rule_(std::move(rule)),
        initializer_(initializer),
        admit_after_(admit_after),
        budget_(std::move(budget)),
        layout_{width, rule_->slot_names().size(), rule_->counts_steps(), tracks_seen},
        slabs_(layout_.bytes() * Bucket::kChunk, budget_),
        buckets_(buckets) {
    if (!width) throw std::invalid_argument("a row needs a width");
    if (!buckets || buckets > kMostBuckets) throw std::invalid_argument("from 1 to 65536 buckets");
  }

  ~Table() {
    for (Bucket& bucket : buckets_) budget_->release(bucket.sightings.size() * kSightingBytes);
  }

  std::size_t width() const { return layout_.width; }
  std::uint32_t buckets() const { return std::uint32_t(buckets_.size()); }
  std::size_t row_bytes() const { return layout_.bytes(); }
  const Rule& rule() const { return *rule_; }
  const Layout& layout() const { return layout_; }

  std::size_t rows() const { return rows_.load(std::memory_order_relaxed); }

  std::uint32_t bucket_rows(std::uint32_t bucket) {
    std::lock_guard<std::mutex> lock(mutex_of(bucket));
    return at(bucket).rows();
  }

  // Copies rows out. Ids without a row get one, or (without `create`, or if they must wait, or are refused) the values
  // that it would start with.
  template <class Out>
  Outcome gather(const std::int64_t* ids, std::size_t n, Out* out, std::uint32_t step, bool create) {
    Outcome total;
    Borrowed work(*this);
    sort(*work, ids, n);
    const std::size_t width = layout_.width;
    const std::size_t fetched = layout_.header() + width * sizeof(float);
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      auto target_of = [&](std::uint32_t item) { return out + std::size_t(work->places[item]) * width; };
      pipeline(*work, from, to, fetched, target_of, [&](Bucket& bucket, std::uint32_t item, char* row, std::uint64_t hash) {
        const std::int64_t id = work->ids[item];
        Out* target = target_of(item);
        if (row) {
          ++total.found;
        } else {
          row = create ? first_sight(bucket, id, hash, step, total) : (++total.absent, nullptr);
          if (!row) return copy_initial(id, target, *work);
        }
        if (create) layout_.set_seen(row, step);
        copy(layout_.values(row), target, width);
      });
    });
    return total;
  }

  // One update of each id's row by the sum of its gradients. Ids without a row get one, unless they must wait: then
  // their gradients have nowhere to go.
  template <class In>
  Outcome update(const std::int64_t* ids, std::size_t n, const In* gradients, double learning_rate,
                 std::uint32_t step, const Preparation& preparation) {
    Outcome total;
    total.not_finite = count_not_finite(gradients, n * layout_.width);
    if (total.not_finite) return total;
    Borrowed work(*this);
    update_with(*work, ids, n, widened(gradients, n * layout_.width, *work), learning_rate, step, preparation, total);
    return total;
  }

  // Puts rows in, in place of those there are. `slots`, `steps` and `seen` may be nullptr: as in a new row.
  Outcome put(const std::int64_t* ids, std::size_t n, const float* values, const float* slots,
              const std::uint32_t* steps, const std::uint32_t* seen) {
    Outcome total;
    Borrowed work(*this);
    sort(*work, ids, n);
    const std::size_t width = layout_.width;
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      auto values_of = [&](std::uint32_t item) { return values + std::size_t(work->places[item]) * width; };
      pipeline(*work, from, to, layout_.bytes(), values_of, [&](Bucket& bucket, std::uint32_t item, char* row, std::uint64_t hash) {
        const std::size_t place = work->places[item];
        if (row) {
          ++total.found;
        } else {
          row = make(bucket, work->ids[item], hash, 0, total);
          if (!row) return;
        }
        std::memcpy(layout_.values(row), values + place * width, width * sizeof(float));
        const std::size_t size = layout_.slots * width;
        if (slots && size) std::memcpy(layout_.slot(row, 0), slots + place * size, size * sizeof(float));
        if (steps) layout_.set_steps(row, steps[place]);
        if (seen) layout_.set_seen(row, seen[place]);
      });
    });
    return total;
  }

  // Ids that have been seen so often, elsewhere.
  void put_waiting(const std::int64_t* ids, std::size_t n, const std::uint32_t* counts, const std::uint32_t* seen) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t which = bucket_of(hash_of(ids[i]), buckets());
      Bucket& bucket = at(which);
      std::lock_guard<std::mutex> lock(mutex_of(which));
      const bool is_known = bucket.sightings.count(ids[i]);
      if (is_known || budget_->reserve(kSightingBytes)) bucket.sightings[ids[i]] = Sighting{counts[i], seen[i]};
    }
  }

  Rows take_copy(std::uint32_t which) {
    Bucket& bucket = at(which);
    Rows copy_of;
    std::lock_guard<std::mutex> lock(mutex_of(which));
    const std::size_t n = bucket.rows(), width = layout_.width, size = layout_.slots * width;
    copy_of.ids.resize(n);
    copy_of.values.resize(n * width);
    copy_of.slots.resize(n * size);
    copy_of.steps.resize(layout_.counts_steps ? n : 0);
    copy_of.seen.resize(layout_.tracks_seen ? n : 0);
    for (std::size_t i = 0; i < n; ++i) {
      char* row = bucket.row(std::uint32_t(i), layout_.bytes());
      copy_of.ids[i] = layout_.id(row);
      std::memcpy(copy_of.values.data() + i * width, layout_.values(row), width * sizeof(float));
      if (size) std::memcpy(copy_of.slots.data() + i * size, layout_.slot(row, 0), size * sizeof(float));
      if (layout_.counts_steps) copy_of.steps[i] = layout_.steps(row);
      if (layout_.tracks_seen) copy_of.seen[i] = layout_.seen(row);
    }
    for (const auto& [id, sighting] : bucket.sightings) {
      copy_of.waiting_ids.push_back(id);
      copy_of.waiting_counts.push_back(sighting.count);
      copy_of.waiting_seen.push_back(sighting.seen);
    }
    return copy_of;
  }

  std::size_t clear(std::uint32_t which) {
    Bucket& bucket = at(which);
    std::lock_guard<std::mutex> lock(mutex_of(which));
    const std::size_t removed = bucket.rows();
    bucket.clear(slabs_);
    forget_sightings(bucket, [](const Sighting&) { return true; });
    rows_.fetch_sub(removed, std::memory_order_relaxed);
    return removed;
  }

  // Removes rows of a bucket that were last seen before a step, and forgets such sightings.
  std::size_t expire(std::uint32_t which, std::uint32_t before) {
    if (!layout_.tracks_seen) throw std::invalid_argument("rows of this table do not expire");
    Bucket& bucket = at(which);
    std::lock_guard<std::mutex> lock(mutex_of(which));
    const std::size_t removed =
        bucket.remove_if([&](char* row) { return layout_.seen(row) < before; }, layout_, slabs_, budget_.get());
    forget_sightings(bucket, [&](const Sighting& sighting) { return sighting.seen < before; });
    rows_.fetch_sub(removed, std::memory_order_relaxed);
    return removed;
  }

 private:
  // How many rows are on their way from memory at once.
  static constexpr std::uint32_t kAhead = 16;
  static constexpr std::uint32_t kLocks = 32;
  static constexpr std::uint32_t kMostBuckets = 65536;
  // What a sighting takes in a std::unordered_map, about.
  static constexpr std::size_t kSightingBytes = 48;

  // What a call needs beside its arguments; kept for the next one.
  struct Work {
    std::vector<std::uint16_t> bucket;
    std::vector<std::uint32_t> starts, places, firsts, sum_of;
    std::vector<std::int64_t> ids;
    std::vector<float> wide, sums, initial;
  };

  class Borrowed {
   public:
    explicit Borrowed(Table& table) : table_(table) {
      std::lock_guard<std::mutex> lock(table_.spare_mutex_);
      if (!table_.spare_.empty()) {
        work_ = std::move(table_.spare_.back());
        table_.spare_.pop_back();
      } else {
        work_ = std::make_unique<Work>();
      }
    }
    ~Borrowed() {
      std::lock_guard<std::mutex> lock(table_.spare_mutex_);
      table_.spare_.push_back(std::move(work_));
    }
    Work& operator*() { return *work_; }
    Work* operator->() { return work_.get(); }

   private:
    Table& table_;
    std::unique_ptr<Work> work_;
  };

  Bucket& at(std::uint32_t bucket) {
    if (bucket >= buckets_.size()) throw std::out_of_range("there is no such bucket");
    return buckets_[bucket];
  }

  // Ids by bucket, in their order within each.
  void sort(Work& work, const std::int64_t* ids, std::size_t n) const {
    if (n >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many ids in one call");
    const std::uint32_t buckets = std::uint32_t(buckets_.size());
    work.bucket.resize(n);
    work.ids.resize(n);
    work.places.resize(n);
    work.starts.assign(buckets + 2, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bucket = bucket_of(hash_of(ids[i]), buckets);
      work.bucket[i] = std::uint16_t(bucket);
      ++work.starts[bucket + 2];
    }
    for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) work.starts[bucket + 2] += work.starts[bucket + 1];
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t place = work.starts[work.bucket[i] + 1]++;
      work.ids[place] = ids[i];
      work.places[place] = std::uint32_t(i);
    }
  }

  // Buckets of one lock are neighbours.
  std::mutex& mutex_of(std::uint32_t bucket) { return locks_[std::size_t(bucket) * kLocks / buckets_.size()]; }

  // Calls `use` for the items of each lock, locked. Those that others hold at the moment come last.
  template <class Use>
  void visit(Work& work, Use use) {
    std::uint32_t ends[kLocks + 1] = {0};
    for (std::uint32_t which = 0; which < buckets_.size(); ++which)
      ends[std::size_t(which) * kLocks / buckets_.size() + 1] = work.starts[which + 1];
    for (std::uint32_t lock = 0; lock < kLocks; ++lock) ends[lock + 1] = std::max(ends[lock + 1], ends[lock]);
    std::uint32_t busy[kLocks], waiting = 0;
    for (std::uint32_t which = 0; which < kLocks; ++which) {
      if (ends[which] == ends[which + 1]) continue;
      std::unique_lock<std::mutex> lock(locks_[which], std::try_to_lock);
      if (lock.owns_lock()) use(ends[which], ends[which + 1]);
      else busy[waiting++] = which;
    }
    for (std::uint32_t i = 0; i < waiting; ++i) {
      std::lock_guard<std::mutex> lock(locks_[busy[i]]);
      use(ends[busy[i]], ends[busy[i] + 1]);
    }
  }

  static void fetch(const void* start, std::size_t bytes) {
    const char* at = static_cast<const char*>(start);
    for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 1);
    __builtin_prefetch(at + bytes - 1, 1);
  }

  // Finds the rows of items and calls `use` with each in turn, or with nullptr. Three groups are under way at once: the
  // index entries of one come from memory, then the rows they name, then these are used.
  // `numbers` is where the caller's own numbers for an item are: they are as far apart as the rows.
  template <class Numbers, class Use>
  void pipeline(Work& work, std::uint32_t from, std::uint32_t to, std::size_t fetched, Numbers numbers, Use use) {
    struct Item {
      Bucket* bucket;
      std::uint64_t hash;
      char* row;
    };
    Item items[3][kAhead];
    const std::size_t bytes = layout_.bytes();
    const std::uint32_t buckets = std::uint32_t(buckets_.size());
    const std::uint32_t groups = (to - from + kAhead - 1) / kAhead;
    for (std::uint32_t turn = 0; turn < groups + 2; ++turn) {
      if (turn < groups) {
        const std::uint32_t start = from + turn * kAhead, size = std::min(kAhead, to - start);
        Item* group = items[turn % 3];
        for (std::uint32_t i = 0; i < size; ++i) {
          const std::uint64_t hash = hash_of(work.ids[start + i]);
          group[i].hash = hash;
          group[i].bucket = &buckets_[bucket_of(hash, buckets)];
          group[i].bucket->prefetch_index(hash);
        }
      }
      if (turn >= 1 && turn - 1 < groups) {
        const std::uint32_t start = from + (turn - 1) * kAhead, size = std::min(kAhead, to - start);
        Item* group = items[(turn - 1) % 3];
        for (std::uint32_t i = 0; i < size; ++i) {
          char* row = group[i].row = group[i].bucket->guess(group[i].hash, bytes);
          if (row) fetch(row, fetched);
          fetch(numbers(start + i), layout_.width * sizeof(*numbers(0)));
        }
      }
      if (turn >= 2) {
        const std::uint32_t start = from + (turn - 2) * kAhead, size = std::min(kAhead, to - start);
        const Item* group = items[(turn - 2) % 3];
        for (std::uint32_t i = 0; i < size; ++i) {
          const std::int64_t id = work.ids[start + i];
          Bucket& bucket = *group[i].bucket;
          char* row = group[i].row;
          // No guess may also mean that the row has been made since.
          if (!row || layout_.id(row) != id) row = bucket.find(id, group[i].hash, layout_);
          use(bucket, start + i, row, group[i].hash);
        }
      }
    }
  }

  void update_with(Work& work, const std::int64_t* ids, std::size_t n, const float* wide, double learning_rate,
                   std::uint32_t step, const Preparation& preparation, Outcome& total) {
    const std::size_t width = layout_.width;
    sort(work, ids, n);
    const StepFactors none;
    visit(work, [&](std::uint32_t from, std::uint32_t to) {
      to = from + sum_duplicates(work, from, to, wide);
      auto gradient_of = [&](std::uint32_t item) {
        const std::uint32_t sum = work.sum_of[item - from];
        return sum ? work.sums.data() + (sum - 1) * width : wide + std::size_t(work.places[item]) * width;
      };
      pipeline(work, from, to, layout_.bytes(), gradient_of, [&](Bucket& bucket, std::uint32_t item, char* row, std::uint64_t hash) {
        if (row) {
          ++total.found;
        } else if (admit_after_ > 1) {
          ++total.waiting;
          return;
        } else {
          row = make(bucket, work.ids[item], hash, step, total);
          if (!row) return;
        }
        layout_.set_seen(row, step);
        float* slots[Rule::kMostSlots];
        for (std::size_t slot = 0; slot < layout_.slots; ++slot) slots[slot] = layout_.slot(row, slot);
        const float* gradient = gradient_of(item);
        if (layout_.counts_steps) {
          const std::uint32_t steps = layout_.steps(row);
          const std::uint32_t next = steps == std::numeric_limits<std::uint32_t>::max() ? steps : steps + 1;
          layout_.set_steps(row, next);
          rule_->update(layout_.values(row), gradient, slots, width, learning_rate, rule_->factors<float>(next),
                        preparation);
        } else {
          rule_->update(layout_.values(row), gradient, slots, width, learning_rate, none, preparation);
        }
      });
    });
  }

  // -- rows ----------------------------------------------------------------------------------------------------

  char* first_sight(Bucket& bucket, std::int64_t id, std::uint64_t hash, std::uint32_t step, Outcome& total) {
    if (admit_after_ > 1) {
      auto found = bucket.sightings.find(id);
      if (found == bucket.sightings.end()) {
        ++total.waiting;
        if (budget_->reserve(kSightingBytes)) bucket.sightings.emplace(id, Sighting{1, step});
        return nullptr;
      }
      found->second.seen = step;
      if (found->second.count + 1 < admit_after_) {
        ++found->second.count;
        ++total.waiting;
        return nullptr;
      }
      char* row = make(bucket, id, hash, step, total);
      if (row) {
        bucket.sightings.erase(found);
        budget_->release(kSightingBytes);
      }
      return row;
    }
    return make(bucket, id, hash, step, total);
  }

  char* make(Bucket& bucket, std::int64_t id, std::uint64_t hash, std::uint32_t step, Outcome& total) {
    char* row = bucket.add(id, hash, layout_, slabs_, budget_.get());
    if (!row) {
      ++total.refused;
      return nullptr;
    }
    ++total.created;
    rows_.fetch_add(1, std::memory_order_relaxed);
    layout_.set_steps(row, 0);
    layout_.set_seen(row, step);
    initializer_.fill(id, layout_.values(row), layout_.width);
    for (std::size_t slot = 0; slot < layout_.slots; ++slot)
      std::fill_n(layout_.slot(row, slot), layout_.width, float(rule_->slot_initial()[slot]));
    return row;
  }

  template <class Condition>
  void forget_sightings(Bucket& bucket, Condition condition) {
    for (auto sighting = bucket.sightings.begin(); sighting != bucket.sightings.end();) {
      if (condition(sighting->second)) {
        sighting = bucket.sightings.erase(sighting);
        budget_->release(kSightingBytes);
      } else {
        ++sighting;
      }
    }
  }

  // -- numbers -------------------------------------------------------------------------------------------------

  template <class Out>
  static void copy(const float* from, Out* to, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) narrow(from[i], to + i);
  }

  static void copy(const float* from, float* to, std::size_t width) {
    // With the size known a copy is a few instructions.
    switch (width) {
      case 8:
        std::memcpy(to, from, 8 * sizeof(float));
        break;
      case 16:
        std::memcpy(to, from, 16 * sizeof(float));
        break;
      case 32:
        std::memcpy(to, from, 32 * sizeof(float));
        break;
      case 64:
        std::memcpy(to, from, 64 * sizeof(float));
        break;
      default:
        std::memcpy(to, from, width * sizeof(float));
    }
  }

  template <class Out>
  void copy_initial(std::int64_t id, Out* to, Work& work) const {
    work.initial.resize(layout_.width);
    initializer_.fill(id, work.initial.data(), layout_.width);
    copy(work.initial.data(), to, layout_.width);
  }

  template <class In>
  static const float* widened(const In* numbers, std::size_t n, Work& work) {
    work.wide.resize(n);
    for (std::size_t i = 0; i < n; ++i) work.wide[i] = widen(numbers[i]);
    return work.wide.data();
  }

  static const float* widened(const float* numbers, std::size_t, Work&) { return numbers; }

  // Moves the items with different ids of a range to its front and returns how many they are. `sum_of` tells where the
  // sum of an item's gradients is, if there were several.
  std::uint32_t sum_duplicates(Work& work, std::uint32_t from, std::uint32_t to, const float* gradients) const {
    const std::uint32_t size = to - from;
    const std::size_t width = layout_.width;
    std::uint32_t room = 4;
    while (room < 2 * size) room *= 2;
    work.firsts.assign(room, 0);
    work.sum_of.assign(size, 0);
    work.sums.clear();
    std::uint32_t kept = 0;
    for (std::uint32_t item = from; item < to; ++item) {
      const std::int64_t id = work.ids[item];
      std::uint32_t at = std::uint32_t(hash_of(id)) & (room - 1);
      while (work.firsts[at] && work.ids[from + work.firsts[at] - 1] != id) at = (at + 1) & (room - 1);
      const float* gradient = gradients + std::size_t(work.places[item]) * width;
      if (!work.firsts[at]) {
        work.firsts[at] = kept + 1;
        work.ids[from + kept] = id;
        work.places[from + kept] = work.places[item];
        ++kept;
        continue;
      }
      const std::uint32_t first = work.firsts[at] - 1;
      if (!work.sum_of[first]) {
        const float* begun = gradients + std::size_t(work.places[from + first]) * width;
        work.sums.insert(work.sums.end(), begun, begun + width);
        work.sum_of[first] = std::uint32_t(work.sums.size() / width);
      }
      float* sum = work.sums.data() + std::size_t(work.sum_of[first] - 1) * width;
      EACH(i, width) sum[i] += gradient[i];
    }
    return kept;
  }

  const std::shared_ptr<const Rule> rule_;
  const Initializer initializer_;
  const std::uint32_t admit_after_;
  const std::shared_ptr<Budget> budget_;
  const Layout layout_;
  Slabs slabs_;
  std::vector<Bucket> buckets_;
  std::mutex locks_[kLocks];
  std::atomic<std::size_t> rows_{0};
  std::mutex spare_mutex_;
  std::vector<std::unique_ptr<Work>> spare_;
};

}  // namespace elasticdl
