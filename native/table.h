// A table: rows of float32 with optimizer slots, by id, created on first access.
//
// The content of a table depends only on its updates, and on their order: a row that a lookup creates has the values
// that it would start with later, and admission and expiry count updates. A replica with the same updates is the same.
//
// Ids are spread over a fixed number of buckets, and every few buckets share a lock: threads that look up and threads
// that update collide only if they need the same ones at the same moment, and then do others first. A call sorts its
// ids by bucket, so that a lock is taken once for many ids and the index of a bucket is in the processor's cache while
// it is used; rows are prefetched from memory.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bucket.h"
#include "halves.h"
#include "hashing.h"
#include "initializers.h"
#include "memory.h"
#include "rules.h"

namespace elasticdl {

// The ids of a call by their outcome.
struct Outcome {
  std::size_t found = 0;       // had a row
  std::size_t created = 0;     // got a row
  std::size_t waiting = 0;     // not updated often enough for a row yet
  std::size_t refused = 0;     // would have got a row, if there were memory
  std::size_t absent = 0;      // no row, and none was to be made
  std::size_t not_finite = 0;  // numbers in gradients; if there are any, nothing was changed
};

// The rows of a bucket, as arrays. Not `complete`: only those that may have changed, and the ids of removed rows
// (`forgotten`), some of which may exist again.
struct Rows {
  bool complete = true;
  std::vector<std::int64_t> ids, forgotten;
  std::vector<float> values, slots;
  std::vector<std::uint32_t> steps, seen;
  std::vector<std::int64_t> waiting_ids;
  std::vector<std::uint32_t> waiting_counts, waiting_seen;

  void reserve(std::size_t rows, const Layout& layout) {
    ids.reserve(rows);
    values.reserve(rows * layout.width);
    slots.reserve(rows * layout.slots * layout.width);
    if (layout.counts_steps) steps.reserve(rows);
    if (layout.tracks_seen) seen.reserve(rows);
  }

  void add(const char* row, const Layout& layout) {
    ids.push_back(layout.id(row));
    const float* numbers = layout.values(row);
    values.insert(values.end(), numbers, numbers + layout.width);
    slots.insert(slots.end(), layout.slot(row, 0), layout.slot(row, 0) + layout.slots * layout.width);
    if (layout.counts_steps) steps.push_back(layout.steps(row));
    if (layout.tracks_seen) seen.push_back(layout.seen(row));
  }

  void add(const Sightings& sightings, std::uint32_t part = 0, std::uint32_t parts = 1) {
    for (const auto& [id, sighting] : sightings.all()) {
      if (part_of(tag_of(hash_of(id)), parts) != part) continue;
      waiting_ids.push_back(id);
      waiting_counts.push_back(sighting.count);
      waiting_seen.push_back(sighting.seen);
    }
  }
};

// Many threads pass at once; one that closes it waits until they are out, and later ones wait until it opens again.
class Gate {
 public:
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate) {
      std::unique_lock<std::mutex> lock(gate_.mutex_);
      gate_.changed_.wait(lock, [&] { return !gate_.closed_; });
      ++gate_.inside_;
    }
    ~Pass() {
      std::lock_guard<std::mutex> lock(gate_.mutex_);
      if (!--gate_.inside_ && gate_.closed_) gate_.changed_.notify_all();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
  };

  class Closed {
   public:
    explicit Closed(Gate& gate) : gate_(gate) {
      std::unique_lock<std::mutex> lock(gate_.mutex_);
      gate_.changed_.wait(lock, [&] { return !gate_.closed_; });
      gate_.closed_ = true;
      gate_.changed_.wait(lock, [&] { return !gate_.inside_; });
    }
    ~Closed() {
      std::lock_guard<std::mutex> lock(gate_.mutex_);
      gate_.closed_ = false;
      gate_.changed_.notify_all();
    }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t inside_ = 0;
  bool closed_ = false;
};

// A mutex that a thread which locks it repeatedly can leave to waiting threads. A plain mutex would mostly be locked
// again before another thread has woken up.
class Lock {
 public:
  void lock() {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // Unlocks it until the present waiters have had it; not for long, since more may arrive all the time.
  void let_others(std::unique_lock<Lock>& held) {
    if (!waiting_.load(std::memory_order_relaxed)) return;
    held.unlock();
    for (int turn = 0; turn < kTurns && waiting_.load(std::memory_order_relaxed); ++turn) std::this_thread::yield();
    held.lock();
  }

 private:
  static constexpr int kTurns = 64;

  std::mutex mutex_;
  std::atomic<std::uint32_t> waiting_{0};
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
        memory_(layout_.chunk_bytes(), layout_.bytes(), budget_),
        buckets_(buckets) {
    if (!width) throw std::invalid_argument("a row needs a width");
    if (!buckets || buckets > kMostBuckets) throw std::invalid_argument("from 1 to 65536 buckets");
    for (Bucket& bucket : buckets_) bucket.use_chunks(layout_.chunk_shift());
  }

  std::size_t width() const { return layout_.width; }
  std::uint32_t buckets() const { return std::uint32_t(buckets_.size()); }
  std::size_t row_bytes() const { return layout_.bytes(); }
  const Rule& rule() const { return *rule_; }
  const Layout& layout() const { return layout_; }

  std::size_t rows() const { return rows_.load(std::memory_order_relaxed); }

  std::uint32_t bucket_rows(std::uint32_t which) {
    const Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    return bucket.rows();
  }

  // The number of rows, and of pending ids without a row.
  std::size_t bucket_bytes(std::uint32_t which) {
    const Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    return bucket.rows() * layout_.bytes() + bucket.sightings().all().size() * Sightings::kBytes;
  }

  // Bytes of the budget: kept for snapshots alone, and left by removed rows for new ones.
  std::size_t copied_bytes() { return memory_.copied_bytes(); }
  std::size_t spare_bytes() { return memory_.rows.spare(); }

  // Copies rows out. Ids without a row get one, or (without `create`, or if they must wait, or are refused) the values
  // that it would start with.
  template <class Out>
  Outcome gather(const std::int64_t* ids, std::size_t n, Out* out, std::uint32_t step, bool create) {
    Outcome total;
    Borrowed work(*this);
    sort(*work, ids, n);
    const std::size_t width = layout_.width, bytes = layout_.bytes();
    const std::size_t fetched = layout_.header() + width * sizeof(float);
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      auto target_of = [&](std::uint32_t item) { return out + std::size_t(work->places[item]) * width; };
      pipeline(*work, from, to, fetched, target_of, [&](Bucket& bucket, std::uint32_t item, std::uint32_t number, std::uint64_t hash) {
        const std::int64_t id = work->ids[item];
        Out* target = target_of(item);
        if (number != Bucket::kNone) {
          ++total.found;
        } else {
          if (!create) ++total.absent;
          else if (admit_after_ > 1) ++total.waiting;
          else number = make(bucket, id, hash, step, total);
          if (number == Bucket::kNone) return copy_initial(id, target, *work);
        }
        copy(layout_.values(bucket.row(number, bytes)), target, width);
      });
    });
    return total;
  }

  // The same of a copy-on-write snapshot, in which no row is created.
  template <class Out>
  Outcome gather_frozen(const std::int64_t* ids, std::size_t n, Out* out, std::uint32_t freeze) {
    Outcome total;
    Borrowed work(*this);
    sort(*work, ids, n);
    const std::size_t width = layout_.width, bytes = layout_.bytes();
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      for (std::uint32_t item = from; item < to; ++item) {
        const std::int64_t id = work->ids[item];
        const std::uint64_t hash = hash_of(id);
        const Bucket& bucket = buckets_[bucket_of(hash, buckets())];
        const Claim& claim = bucket.claim_of(freeze);
        const std::uint32_t number = bucket.find(id, hash, claim, layout_);
        Out* target = out + std::size_t(work->places[item]) * width;
        if (number == Bucket::kNone) {
          ++total.absent;
          copy_initial(id, target, *work);
        } else {
          ++total.found;
          copy(layout_.values(bucket.row(number, claim, bytes)), target, width);
        }
      }
    });
    return total;
  }

  // Updates each id's row once by the sum of its gradients. Ids without a row get one, unless they must wait: then
  // their gradients are dropped. `unique`: the caller guarantees that no id comes twice (each would be an update).
  // `finite`: the caller has checked the gradients.
  template <class In>
  Outcome update(const std::int64_t* ids, std::size_t n, const In* gradients, double learning_rate,
                 std::uint32_t step, const Preparation& preparation, bool unique = false, bool finite = false) {
    Outcome total;
    if (!finite) total.not_finite = count_not_finite(gradients, n * layout_.width);
    if (total.not_finite) return total;
    Borrowed work(*this);
    Gate::Pass pass(gate_);
    const float* wide = widened(gradients, n * layout_.width, *work);
    sort(*work, ids, n);
    if (unique) {
      apply(*work, total, step, learning_rate, preparation, [&](std::uint32_t, std::uint32_t to) { return to; },
            [&](std::uint32_t, std::uint32_t item) { return wide + std::size_t(work->places[item]) * layout_.width; });
      return total;
    }
    own_order(*work, n);
    apply(*work, total, step, learning_rate, preparation,
          [&](std::uint32_t from, std::uint32_t to) { return from + sum_duplicates(*work, from, to, wide); },
          [&](std::uint32_t from, std::uint32_t item) {
            const std::uint32_t sum = work->sum_of[item - from];
            return sum ? work->sums.data() + (sum - 1) * layout_.width
                       : wide + std::size_t(work->places[item]) * layout_.width;
          });
    return total;
  }

  // Puts rows, replacing present ones. `slots`, `steps` and `seen` may be nullptr: as in a new row.
  Outcome put(const std::int64_t* ids, std::size_t n, const float* values, const float* slots,
              const std::uint32_t* steps, const std::uint32_t* seen) {
    Outcome total;
    Borrowed work(*this);
    Gate::Pass pass(gate_);
    sort(*work, ids, n);
    const std::size_t width = layout_.width, bytes = layout_.bytes();
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      expect(*work, from, to);
      auto values_of = [&](std::uint32_t item) { return values + std::size_t(work->places[item]) * width; };
      pipeline(*work, from, to, bytes, values_of, [&](Bucket& bucket, std::uint32_t item, std::uint32_t number, std::uint64_t hash) {
        const std::size_t place = work->places[item];
        if (number != Bucket::kNone) {
          ++total.found;
          bucket.touch(number, freezes_, memory_, bytes);
        } else {
          number = add(bucket, work->ids[item], hash, 0, total);
          if (number == Bucket::kNone) return;
          if (!slots) begin_slots(bucket.row(number, bytes));
        }
        // An id with a row is not pending.
        if (bucket.sightings().all().count(work->ids[item])) bucket.sightings(freezes_).forget(work->ids[item]);
        char* row = bucket.row(number, bytes);
        std::memcpy(layout_.values(row), values + place * width, width * sizeof(float));
        const std::size_t size = layout_.slots * width;
        if (slots && size) std::memcpy(layout_.slot(row, 0), slots + place * size, size * sizeof(float));
        if (steps) layout_.set_steps(row, steps[place]);
        if (seen) layout_.set_seen(row, seen[place]);
      });
    });
    return total;
  }

  // Copies whole rows out, those of ids that have one (`present`): values, slots by row, slot and column, and steps.
  void take(const std::int64_t* ids, std::size_t n, float* values, float* slots, std::uint32_t* steps, bool* present) {
    Borrowed work(*this);
    sort(*work, ids, n);
    const std::size_t width = layout_.width, bytes = layout_.bytes(), size = layout_.slots * width;
    visit(*work, [&](std::uint32_t from, std::uint32_t to) {
      auto values_of = [&](std::uint32_t item) { return values + std::size_t(work->places[item]) * width; };
      pipeline(*work, from, to, bytes, values_of, [&](Bucket& bucket, std::uint32_t item, std::uint32_t number, std::uint64_t) {
        const std::size_t place = work->places[item];
        present[place] = number != Bucket::kNone;
        if (number == Bucket::kNone) return;
        const char* row = bucket.row(number, bytes);
        std::memcpy(values + place * width, layout_.values(row), width * sizeof(float));
        if (size) std::memcpy(slots + place * size, layout_.slot(row, 0), size * sizeof(float));
        steps[place] = layout_.counts_steps ? layout_.steps(row) : 0;
      });
    });
  }

  // Reserves room for so many rows.
  void expect_rows(std::size_t rows) { memory_.rows.expect(rows * layout_.bytes()); }

  // Puts pending ids that have been updated so often on another server.
  void put_waiting(const std::int64_t* ids, std::size_t n, const std::uint32_t* counts, const std::uint32_t* seen) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t which = bucket_of(hash_of(ids[i]), buckets());
      std::lock_guard<Lock> lock(mutex_of(which));
      at(which).sightings(freezes_).set(ids[i], Sighting{counts[i], seen[i]}, budget_.get());
    }
  }

  void forget_waiting(std::uint32_t which) {
    Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    forget_sightings(bucket, [](const Sighting&) { return true; });
  }

  std::size_t clear(std::uint32_t which) {
    Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    forget_sightings(bucket, [](const Sighting&) { return true; });
    bucket.reset(freezes_);
    return remove(bucket, [](const char*) { return true; });
  }

  // Removes some rows of a bucket.
  std::size_t forget(std::uint32_t which, const std::int64_t* ids, std::size_t n) {
    Bucket& bucket = at(which);
    const std::unordered_set<std::int64_t> chosen(ids, ids + n);
    std::lock_guard<Lock> lock(mutex_of(which));
    return remove(bucket, [&](const char* row) { return chosen.count(layout_.id(row)) > 0; });
  }

  // Removes rows of a bucket that were last updated before a step, and such pending ids.
  std::size_t expire(std::uint32_t which, std::uint32_t before) {
    if (!layout_.tracks_seen) throw std::invalid_argument("rows of this table do not expire");
    Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    forget_sightings(bucket, [&](const Sighting& sighting) { return sighting.seen < before; });
    return remove(bucket, [&](const char* row) { return layout_.seen(row) < before; });
  }

  // -- copies ----------------------------------------------------------------------------------------------------

  // From now on the present state can be read: with all of each update or nothing of it. Returns the number of the
  // snapshot. `mark`: a later difference will be relative to this freeze.
  std::uint32_t freeze(bool mark) {
    Gate::Closed closed(gate_);
    std::vector<std::unique_lock<Lock>> all;
    for (Lock& each : locks_) all.emplace_back(each);
    if (freezes_.count == std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many frozen copies");
    ++freezes_.count;
    if (mark) {
      freezes_.mark_before = freezes_.mark;
      freezes_.mark = freezes_.count;
    }
    for (Bucket& bucket : buckets_) bucket.claim(freezes_.count);
    return freezes_.count;
  }

  // Releases a bucket of a copy-on-write snapshot.
  void release(std::uint32_t which, std::uint32_t freeze) {
    Bucket& bucket = at(which);
    KeptRows unused;
    {
      std::lock_guard<Lock> lock(mutex_of(which));
      unused = bucket.release(freeze);
    }
    for (const auto& [row, copy] : unused) memory_.give_copy(copy);
  }

  // Returns one of so many parts of a bucket.
  Rows take_part(std::uint32_t which, std::uint32_t part, std::uint32_t parts) {
    if (part >= parts || parts > kTags) throw std::invalid_argument("there is no such part");
    Bucket& bucket = at(which);
    std::lock_guard<Lock> lock(mutex_of(which));
    Rows copy_of;
    copy_of.reserve(bucket.rows() / parts, layout_);
    bucket.visit_part(part, parts, layout_.bytes(), [&](const char* row) { copy_of.add(row, layout_); });
    copy_of.add(bucket.sightings(), part, parts);
    return copy_of;
  }

  // Returns the content of a bucket; with a freeze, as it was then; with an earlier one too, the changes since that.
  //
  // A snapshot is copied some rows at a time, since lookups and updates wait for the lock: it does not change in
  // between, except by a release. A later freeze may make a change unknown, and then more rows are copied.
  Rows take_copy(std::uint32_t which, std::uint32_t freeze, std::uint32_t since) {
    Bucket& bucket = at(which);
    Lock& mutex = mutex_of(which);
    std::unique_lock<Lock> lock(mutex);
    const std::size_t bytes = layout_.bytes();
    Rows copy_of;
    if (!freeze) {
      copy_of.reserve(bucket.rows(), layout_);
      for (std::uint32_t number = 0; number < bucket.rows(); ++number)
        copy_of.add(bucket.row(number, bytes), layout_);
      copy_of.add(bucket.sightings());
      return copy_of;
    }
    copy_of.complete = !since || bucket.was_reset(since);
    if (!copy_of.complete) copy_of.forgotten = bucket.forgotten(bucket.claim_of(freeze), since);
    const std::uint32_t rows = bucket.claim_of(freeze).rows;
    if (copy_of.complete) {
      lock.unlock();
      copy_of.reserve(rows, layout_);
      lock.lock();
    }
    for (std::uint32_t from = 0; from < rows; from += kRowsAtOnce) {
      if (from) mutex.let_others(lock);
      // Another row may have its place now.
      const Claim& claim = bucket.claim_of(freeze);
      const std::uint32_t to = std::min(rows, from + kRowsAtOnce);
      for (std::uint32_t number = from; number < to; ++number)
        if (copy_of.complete || bucket.has_changed(number, claim, since, freezes_))
          copy_of.add(bucket.row(number, claim, bytes), layout_);
    }
    copy_of.add(bucket.sightings(bucket.claim_of(freeze)));
    return copy_of;
  }

 private:
  // The number of rows prefetched at once.
  static constexpr std::uint32_t kAhead = 16;
  static constexpr std::uint32_t kLocks = 32;
  // Rows of a snapshot copied under one lock: some ten microseconds.
  static constexpr std::uint32_t kRowsAtOnce = 512;
  static constexpr std::uintptr_t kLine = 64;
  static constexpr std::uint32_t kMostBuckets = 65536;

  // Buffers of a call, reused by the next one.
  struct Work {
    // The ids in the order of their buckets, and their places in the call: the call's own arrays, or those below.
    const std::int64_t* ids;
    const std::uint32_t* places;
    bool in_order;
    std::vector<std::int64_t> sorted_ids;
    std::vector<std::uint32_t> sorted_places, counted;
    std::vector<std::uint16_t> bucket;
    std::vector<std::uint32_t> starts, firsts, sum_of;
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

  // Sorts ids by bucket, keeping their order within each. Workers send them sorted: then nothing is moved.
  void sort(Work& work, const std::int64_t* ids, std::size_t n) const {
    if (n >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many ids in one call");
    const std::uint32_t buckets = std::uint32_t(buckets_.size());
    work.bucket.resize(n);
    work.starts.assign(buckets + 2, 0);
    bool in_order = true;
    std::uint32_t before = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bucket = bucket_of(hash_of(ids[i]), buckets);
      in_order &= bucket >= before;
      before = bucket;
      work.bucket[i] = std::uint16_t(bucket);
      ++work.starts[bucket + 2];
    }
    for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) work.starts[bucket + 2] += work.starts[bucket + 1];
    work.in_order = in_order;
    if (in_order) {
      while (work.counted.size() < n) work.counted.push_back(std::uint32_t(work.counted.size()));
      work.ids = ids;
      work.places = work.counted.data();
      work.starts.erase(work.starts.begin());
      return;
    }
    work.sorted_ids.resize(n);
    work.sorted_places.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t place = work.starts[work.bucket[i] + 1]++;
      work.sorted_ids[place] = ids[i];
      work.sorted_places[place] = std::uint32_t(i);
    }
    work.ids = work.sorted_ids.data();
    work.places = work.sorted_places.data();
  }

  // Buckets of one lock are neighbours.
  Lock& mutex_of(std::uint32_t bucket) { return locks_[std::size_t(bucket) * kLocks / buckets_.size()]; }

  // Calls `use` for the items of each lock, locked. Locks that are held at the moment come last.
  template <class Use>
  void visit(Work& work, Use use) {
    std::uint32_t ends[kLocks + 1] = {0};
    for (std::uint32_t which = 0; which < buckets_.size(); ++which)
      ends[std::size_t(which) * kLocks / buckets_.size() + 1] = work.starts[which + 1];
    for (std::uint32_t lock = 0; lock < kLocks; ++lock) ends[lock + 1] = std::max(ends[lock + 1], ends[lock]);
    std::uint32_t busy[kLocks], waiting = 0;
    for (std::uint32_t which = 0; which < kLocks; ++which) {
      if (ends[which] == ends[which + 1]) continue;
      std::unique_lock<Lock> lock(locks_[which], std::try_to_lock);
      if (lock.owns_lock()) use(ends[which], ends[which + 1]);
      else busy[waiting++] = which;
    }
    for (std::uint32_t i = 0; i < waiting; ++i) {
      std::lock_guard<Lock> lock(locks_[busy[i]]);
      use(ends[busy[i]], ends[busy[i] + 1]);
    }
  }

  // Always inlined, since a call could cost more than the work.
  static INSIDE void fetch(const void* start, std::size_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(start) / kLine * kLine;
    const auto end = reinterpret_cast<std::uintptr_t>(start) + bytes;
    for (auto line = first; line < end; line += kLine) __builtin_prefetch(reinterpret_cast<const void*>(line), 1);
  }

  // Finds the rows of items and calls `use` with the number of each in turn, or with kNone. Four groups are in flight
  // at once, so that memory is prefetched for one while the others are computed: the index entries, then the places of
  // the chunks of their rows, then these rows, and then they are used.
  // `numbers` are the caller's own numbers of each item, prefetched like the rows if they are not in order.
  template <class Numbers, class Use>
  void pipeline(Work& work, std::uint32_t from, std::uint32_t to, std::size_t fetched, Numbers numbers, Use use) {
    struct Item {
      Bucket* bucket;
      std::uint64_t hash;
      std::uint32_t number;
      const char* row;  // rows never move
    };
    constexpr std::uint32_t kStages = 4;
    Item items[kStages][kAhead];
    const std::size_t bytes = layout_.bytes();
    const std::uint32_t buckets = std::uint32_t(buckets_.size());
    const std::uint32_t groups = (to - from + kAhead - 1) / kAhead;
    for (std::uint32_t turn = 0; turn < groups + kStages - 1; ++turn) {
      // For each item of the group that was added so many turns ago.
      auto stage = [&](std::uint32_t ago, auto step) {
        if (turn < ago || turn - ago >= groups) return;
        const std::uint32_t start = from + (turn - ago) * kAhead, size = std::min(kAhead, to - start);
        Item* group = items[(turn - ago) % kStages];
        for (std::uint32_t i = 0; i < size; ++i) step(group[i], start + i);
      };
      stage(0, [&](Item& item, std::uint32_t at) {
        item.hash = hash_of(work.ids[at]);
        item.bucket = &buckets_[bucket_of(item.hash, buckets)];
        item.bucket->prefetch_index(item.hash);
      });
      stage(1, [&](Item& item, std::uint32_t) {
        item.number = item.bucket->guess(item.hash);
        if (item.number != Bucket::kNone) item.bucket->prefetch_chunk(item.number);
      });
      stage(2, [&](Item& item, std::uint32_t at) {
        if (item.number != Bucket::kNone) {
          item.row = item.bucket->row(item.number, bytes);
          fetch(item.row, fetched);
        }
        if (!work.in_order) fetch(numbers(at), layout_.width * sizeof(*numbers(0)));
      });
      stage(3, [&](Item& item, std::uint32_t at) {
        const std::int64_t id = work.ids[at];
        std::uint32_t number = item.number;
        // The row may also have been created since.
        if (number == Bucket::kNone || layout_.id(item.row) != id) number = item.bucket->find(id, item.hash, layout_);
        use(*item.bucket, at, number, item.hash);
      });
    }
  }

  // Updates rows. `prepare` is called with the items of a lock, and returns the end of those to be used; `gradient_of`
  // with the first of them and one.
  template <class Prepare, class Gradient>
  void apply(Work& work, Outcome& total, std::uint32_t step, double learning_rate, const Preparation& preparation,
             Prepare prepare, Gradient gradient) {
    const std::size_t width = layout_.width, bytes = layout_.bytes();
    const StepFactors none;
    const bool plain = rule_->is_plain(preparation);
    visit(work, [&](std::uint32_t from, std::uint32_t to) {
      to = prepare(from, to);
      auto gradient_of = [&](std::uint32_t item) { return gradient(from, item); };
      pipeline(work, from, to, bytes, gradient_of, [&](Bucket& bucket, std::uint32_t item, std::uint32_t number, std::uint64_t hash) {
        if (number != Bucket::kNone) {
          ++total.found;
          bucket.touch(number, freezes_, memory_, bytes);
        } else {
          number = sighted(bucket, work.ids[item], hash, step, total);
          if (number == Bucket::kNone) return;
        }
        char* row = bucket.row(number, bytes);
        layout_.set_seen(row, step);
        float* slots[Rule::kMostSlots];
        for (std::size_t slot = 0; slot < layout_.slots; ++slot) slots[slot] = layout_.slot(row, slot);
        const float* given = gradient_of(item);
        if (layout_.counts_steps) {
          const std::uint32_t steps = layout_.steps(row);
          const std::uint32_t next = steps == std::numeric_limits<std::uint32_t>::max() ? steps : steps + 1;
          layout_.set_steps(row, next);
          rule_->update(layout_.values(row), given, slots, width, learning_rate, rule_->factors<float>(next),
                        preparation);
        } else {
          if (plain) rule_->apply(layout_.values(row), given, slots, width, learning_rate, none);
          else rule_->update(layout_.values(row), given, slots, width, learning_rate, none, preparation);
        }
      });
    });
  }

  // -- rows ----------------------------------------------------------------------------------------------------

  // Creates or finds the row of an id that had none when its update began.
  std::uint32_t sighted(Bucket& bucket, std::int64_t id, std::uint64_t hash, std::uint32_t step, Outcome& total) {
    if (admit_after_ == 1) return make(bucket, id, hash, step, total);
    Sightings& sightings = bucket.sightings(freezes_);
    const Sighting* found = sightings.find(id);
    const std::uint32_t count = (found ? found->count : 0) + 1;
    if (count < admit_after_) {
      sightings.set(id, Sighting{count, step}, budget_.get());
      ++total.waiting;
      return Bucket::kNone;
    }
    const std::uint32_t number = make(bucket, id, hash, step, total);
    if (number != Bucket::kNone) sightings.forget(id);
    return number;
  }

  std::uint32_t make(Bucket& bucket, std::int64_t id, std::uint64_t hash, std::uint32_t step, Outcome& total) {
    const std::uint32_t number = add(bucket, id, hash, step, total);
    if (number == Bucket::kNone) return number;
    char* row = bucket.row(number, layout_.bytes());
    initializer_.fill(id, layout_.values(row), layout_.width);
    begin_slots(row);
    return number;
  }

  // Adds a row whose numbers are still to be written.
  std::uint32_t add(Bucket& bucket, std::int64_t id, std::uint64_t hash, std::uint32_t step, Outcome& total) {
    const std::uint32_t number = bucket.add(id, hash, freezes_, layout_, memory_, budget_.get());
    if (number == Bucket::kNone) {
      ++total.refused;
      return number;
    }
    ++total.created;
    rows_.fetch_add(1, std::memory_order_relaxed);
    char* row = bucket.row(number, layout_.bytes());
    layout_.set_steps(row, 0);
    layout_.set_seen(row, step);
    return number;
  }

  void begin_slots(char* row) const {
    for (std::size_t slot = 0; slot < layout_.slots; ++slot)
      std::fill_n(layout_.slot(row, slot), layout_.width, float(rule_->slot_initial()[slot]));
  }

  // Reserves room for items that are about to be put into empty buckets.
  void expect(const Work& work, std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t item = from; item < to;) {
      const std::uint32_t which = bucket_of(hash_of(work.ids[item]), buckets()), end = work.starts[which + 1];
      buckets_[which].expect(end - item, memory_, budget_.get());
      item = end;
    }
  }

  template <class Condition>
  std::size_t remove(Bucket& bucket, Condition condition) {
    const std::size_t removed = bucket.remove_if(condition, freezes_, layout_, memory_, budget_.get());
    rows_.fetch_sub(removed, std::memory_order_relaxed);
    return removed;
  }

  template <class Condition>
  void forget_sightings(Bucket& bucket, Condition condition) {
    if (!bucket.sightings().all().empty()) bucket.sightings(freezes_).forget_if(condition);
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

  // An order that may be changed.
  static void own_order(Work& work, std::size_t n) {
    if (!work.in_order) return;
    work.sorted_ids.assign(work.ids, work.ids + n);
    work.sorted_places.assign(work.places, work.places + n);
    work.ids = work.sorted_ids.data();
    work.places = work.sorted_places.data();
  }

  // Moves the items with different ids of a range to its front and returns their number. `sum_of` has the place of the
  // sum of an item's gradients, if there were several.
  std::uint32_t sum_duplicates(Work& work, std::uint32_t from, std::uint32_t to, const float* gradients) const {
    const std::uint32_t size = to - from;
    const std::size_t width = layout_.width;
    std::int64_t* ids = work.sorted_ids.data() + from;
    std::uint32_t* places = work.sorted_places.data() + from;
    std::uint32_t room = 4;
    while (room < 2 * size) room *= 2;
    work.firsts.assign(room, 0);
    work.sum_of.assign(size, 0);
    work.sums.clear();
    std::uint32_t kept = 0;
    for (std::uint32_t item = 0; item < size; ++item) {
      const std::int64_t id = ids[item];
      std::uint32_t at = std::uint32_t(hash_of(id)) & (room - 1);
      while (work.firsts[at] && ids[work.firsts[at] - 1] != id) at = (at + 1) & (room - 1);
      const float* gradient = gradients + std::size_t(places[item]) * width;
      if (!work.firsts[at]) {
        work.firsts[at] = kept + 1;
        ids[kept] = id;
        places[kept] = places[item];
        ++kept;
        continue;
      }
      const std::uint32_t first = work.firsts[at] - 1;
      if (!work.sum_of[first]) {
        const float* begun = gradients + std::size_t(places[first]) * width;
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
  Memory memory_;
  std::vector<Bucket> buckets_;
  Lock locks_[kLocks];
  Gate gate_;
  // Changed with all locks held.
  Freezes freezes_;
  std::atomic<std::size_t> rows_{0};
  std::mutex spare_mutex_;
  std::vector<std::unique_ptr<Work>> spare_;
};

}  // namespace elasticdl
