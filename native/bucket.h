// One bucket of a table: some rows, and the index by which they are found. Not thread-safe: the table locks it.
//
// A row is its id, the number of its updates if the optimizer counts them, the step of its last update if rows may
// expire, its values, and its slots, one behind the other: a lookup finds the row's first values in the same
// cache line. Rows lie in chunks of 32, of fewer if they are wide, that never move; they are numbered without gaps.
//
// The index is an open-addressing table of four bytes an entry: eight bits of the id's hash, so that a wrong row is
// hardly ever looked at, and the row's number. It is between 75 and 88 % full and grows by a sixth, from the rows.
//
// A bucket can be read as it was when its table was frozen (`Claim`), by any number of readers. A freeze copies nothing.
// A row is copied before its first change after a freeze, if a claim needs it: batches touch rows all over a table, so
// copying whole chunks would copy thirty times as much. Other changing state is copied too: the index if rows are
// removed, which renumbers rows, and the pending ids.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hashing.h"
#include "initializers.h"
#include "memory.h"
#include "rules.h"

namespace elasticdl {

// The layout of a row. The same for all rows of a table.
struct Layout {
  std::size_t width, slots;
  bool counts_steps, tracks_seen;

  std::size_t header() const { return 8 + (counts_steps ? 4 : 0) + (tracks_seen ? 4 : 0); }
  std::size_t bytes() const { return header() + (1 + slots) * width * sizeof(float); }

  // Rows per chunk, as a power of two. In every bucket the last chunk has unused space: of wide rows
  // that would be more than all else.
  std::uint32_t chunk_shift() const {
    std::uint32_t shift = kMostShift;
    while (shift && bytes() << shift > kChunkBytes) --shift;
    return shift;
  }
  std::size_t chunk_bytes() const { return bytes() << chunk_shift(); }

  static constexpr std::uint32_t kMostShift = 5;
  static constexpr std::size_t kChunkBytes = std::size_t(32) << 10;

  std::int64_t id(const char* row) const {
    std::int64_t found;
    std::memcpy(&found, row, sizeof found);
    return found;
  }
  void set_id(char* row, std::int64_t id) const { std::memcpy(row, &id, sizeof id); }
  std::uint32_t steps(const char* row) const { return counts_steps ? number(row + 8) : 0; }
  void set_steps(char* row, std::uint32_t steps) const {
    if (counts_steps) std::memcpy(row + 8, &steps, sizeof steps);
  }
  std::uint32_t seen(const char* row) const { return tracks_seen ? number(row + header() - 4) : 0; }
  void set_seen(char* row, std::uint32_t step) const {
    if (tracks_seen) std::memcpy(row + header() - 4, &step, sizeof step);
  }
  // All parts of a row have sizes of whole floats.
  float* values(char* row) const { return reinterpret_cast<float*>(row + header()); }
  const float* values(const char* row) const { return reinterpret_cast<const float*>(row + header()); }
  float* slot(char* row, std::size_t which) const { return values(row) + (which + 1) * width; }
  const float* slot(const char* row, std::size_t which) const { return values(row) + (which + 1) * width; }

 private:
  static std::uint32_t number(const char* at) {
    std::uint32_t found;
    std::memcpy(&found, at, sizeof found);
    return found;
  }
};

// An id that has been seen, but not often enough for a row.
struct Sighting {
  std::uint32_t count, seen;
};

// The pending ids of a bucket, with their bytes in the budget.
class Sightings {
 public:
  // The approximate bytes of an entry of a std::unordered_map.
  static constexpr std::size_t kBytes = 48;

  using Map = std::unordered_map<std::int64_t, Sighting>;

  Sightings() = default;
  Sightings(const Sightings&) = delete;
  Sightings& operator=(const Sightings&) = delete;
  ~Sightings() { forget_if([](const Sighting&) { return true; }); }

  const Map& all() const { return map_; }

  Sighting* find(std::int64_t id) {
    auto found = map_.find(id);
    return found == map_.end() ? nullptr : &found->second;
  }

  // Dropped at once if there is no memory for it.
  void set(std::int64_t id, Sighting sighting, Budget* budget) {
    budget_ = budget;
    if (map_.count(id) || budget->reserve(kBytes)) map_[id] = sighting;
  }

  void forget(std::int64_t id) {
    if (map_.erase(id)) budget_->release(kBytes);
  }

  template <class Condition>
  void forget_if(Condition condition) {
    for (auto each = map_.begin(); each != map_.end();) {
      if (condition(each->second)) {
        each = map_.erase(each);
        budget_->release(kBytes);
      } else {
        ++each;
      }
    }
  }

  std::shared_ptr<const Sightings> copy() const {
    auto made = std::make_shared<Sightings>();
    made->map_ = map_;
    made->budget_ = budget_;
    if (budget_) budget_->demand(map_.size() * kBytes);
    return made;
  }

 private:
  Map map_;
  Budget* budget_ = nullptr;
};

// The allocators of a table's chunks and indexes. Rows that are kept for claims have their own: when the last of them is
// released, their memory is free at once.
struct Memory {
  Memory(std::size_t chunk, std::size_t row, std::shared_ptr<Budget> budget)
      : rows(chunk, budget), copies(row, budget), budget_(std::move(budget)) {}
  ~Memory() { budget_->release(copied_ * kCopyBytes); }

  // Room for a copy of a row that a claim needs, also beyond the budget; nullptr if there is no memory left.
  char* take_copy() {
    char* copy = copies.take(true);
    if (!copy) return nullptr;
    ++copied_;
    budget_->demand(kCopyBytes);
    return copy;
  }

  void give_copy(char* copy) {
    copies.give(copy);
    --copied_;
    budget_->release(kCopyBytes);
  }

  std::size_t copied_bytes() { return copies.bytes() + copied_ * kCopyBytes; }

  Slabs rows, copies;
  Shelves indexes;

 private:
  // Approximate size of an entry of a std::map, by which a copy is found.
  static constexpr std::size_t kCopyBytes = 64;

  const std::shared_ptr<Budget> budget_;
  std::atomic<std::size_t> copied_{0};
};

// How often a table has been frozen, and which of the freezes were the last two marks: changes since a mark are known
// row by row, and since other freezes chunk by chunk.
struct Freezes {
  std::uint32_t count = 0, mark = 0, mark_before = 0;
};

// A reader's claim to see a bucket as it was at a freeze.
struct Claim {
  std::uint32_t freeze;  // they are numbered from 1 on
  std::uint32_t rows;
  std::shared_ptr<const Zeros> index = nullptr;          // nullptr: still the bucket's own
  std::shared_ptr<const Sightings> sightings = nullptr;  // the same
};

// Rows as they were at a freeze, by their number and the last freeze that saw them so.
using KeptRows = std::map<std::pair<std::uint32_t, std::uint32_t>, char*>;

class Bucket {
 public:
  static constexpr std::uint32_t kMostRows = (1u << 24) - 2;
  static constexpr std::uint32_t kNone = ~std::uint32_t(0);

  // Before anything else: its chunks are of so many rows.
  void use_chunks(std::uint32_t shift) { shift_ = shift; }

  std::uint32_t rows() const { return rows_; }

  char* row(std::uint32_t number, std::size_t bytes) const {
    return chunks_[number >> shift_].rows + place(number) * bytes;
  }

  void prefetch_index(std::uint64_t hash) const {
    if (index_.size()) __builtin_prefetch(index_.data() + home(index_, hash));
  }

  void prefetch_chunk(std::uint32_t number) const { __builtin_prefetch(chunks_.data() + (number >> shift_)); }

  // Returns the row that most likely has the hash, without reading it; kNone if there certainly is none.
  std::uint32_t guess(std::uint64_t hash) const {
    return search(index_, hash, [](std::uint32_t) { return true; });
  }

  std::uint32_t find(std::int64_t id, std::uint64_t hash, const Layout& layout) const {
    const std::size_t bytes = layout.bytes();
    return search(index_, hash, [&](std::uint32_t number) { return layout.id(row(number, bytes)) == id; });
  }

  // Calls `use` with the rows of one of so many parts. The index knows them without reading the others. They come in
  // the order of their numbers: in that of the index they would cluster in the index of another bucket, which grows
  // while it receives them.
  template <class Use>
  void visit_part(std::uint32_t part, std::uint32_t parts, std::size_t bytes, Use use) const {
    std::vector<std::uint32_t> found;
    found.reserve(rows_ / parts);
    for (std::size_t at = 0; at < index_.size(); ++at)
      if (index_[at] && part_of(index_[at] >> 24, parts) == part) found.push_back((index_[at] & kNumber) - 1);
    std::sort(found.begin(), found.end());
    for (std::uint32_t number : found) use(row(number, bytes));
  }

  // Must be called before a row is changed.
  void touch(std::uint32_t number, const Freezes& freezes, Memory& memory, std::size_t bytes) {
    Chunk& chunk = chunks_[number >> shift_];
    const std::uint32_t bit = std::uint32_t(1) << place(number);
    if (chunk.written != freezes.count) note_change(number >> shift_, freezes);
    if (!(chunk.saved & bit)) save_row(number, freezes, memory, bytes);
    chunk.saved |= bit;
    chunk.changed |= bit;
  }

  // Reserves room for rows of an empty bucket: its index is allocated once, and not again and again as it grows.
  // Without memory for that, it grows.
  void expect(std::size_t rows, Memory& memory, Budget* budget) {
    if (rows_ || rows > kMostRows) return;
    index_.replace(index_size(rows), memory.indexes, budget);
    chunks_.reserve((rows + chunk_rows() - 1) >> shift_);
  }

  // Adds an empty row with its id; kNone if there is no memory for it.
  std::uint32_t add(std::int64_t id, std::uint64_t hash, const Freezes& freezes, const Layout& layout, Memory& memory,
                    Budget* budget) {
    if (rows_ == kMostRows) return kNone;
    if ((std::size_t(rows_) + 1) * 8 > index_.size() * 7 && !rebuild(rows_ + 1, layout, memory, budget)) return kNone;
    if (rows_ == chunks_.size() << shift_) {
      char* fresh = memory.rows.take();
      if (!fresh) return kNone;
      // Grows by an eighth, since a vector by itself would double.
      if (chunks_.size() == chunks_.capacity()) chunks_.reserve(chunks_.size() + chunks_.size() / 8 + 4);
      chunks_.push_back(Chunk{{freezes.count, 0}, fresh, 0});
    }
    touch(rows_, freezes, memory, layout.bytes());
    layout.set_id(row(rows_, layout.bytes()), id);
    insert(index_, hash, rows_);
    return rows_++;
  }

  // Removes rows, fills the gaps with the last ones, and frees unused memory. Returns their number.
  template <class Condition>
  std::uint32_t remove_if(Condition condition, const Freezes& freezes, const Layout& layout, Memory& memory,
                          Budget* budget) {
    const std::size_t bytes = layout.bytes();
    std::uint32_t kept = rows_;
    const auto is_removed = [&](std::uint32_t number) {
      const char* at = row(number, bytes);
      if (!condition(at)) return false;
      note_forgotten(layout.id(at), freezes);
      return true;
    };
    for (std::uint32_t number = 0; number < kept; ++number) {
      if (!is_removed(number)) continue;
      do --kept;
      while (kept > number && is_removed(kept));
      if (kept == number) break;
      touch(number, freezes, memory, bytes);
      std::memcpy(row(number, bytes), row(kept, bytes), bytes);
    }
    const std::uint32_t removed = rows_ - kept;
    if (!removed) return 0;
    rows_ = kept;
    while (chunks_.size() << shift_ >= std::size_t(kept) + chunk_rows()) drop_last_chunk(freezes, memory, bytes);
    chunks_.shrink_to_fit();
    if (forgotten_.size() > rows_ / kForgottenShare + kForgottenAnyway) reset(freezes);
    const bool is_claimed = leave_index_to_claims();
    if (!kept) {
      index_.clear();
    } else if (!rebuild(kept, layout, memory, budget, is_claimed)) {
      if (is_claimed) throw std::bad_alloc();
      // No memory for a smaller index beside the old one: keep that.
      std::memset(&index_[0], 0, index_.size() * sizeof(std::uint32_t));
      fill_index(layout);
    }
    return removed;
  }

  // Rows from before the reset have no history: later differences start here.
  void reset(const Freezes& freezes) {
    emptied_ = freezes.count;
    std::vector<Forgotten>().swap(forgotten_);
  }

  // -- pending ids ------------------------------------------------------------------------------------------------

  const Sightings& sightings() const { return *sightings_; }

  // For changes.
  Sightings& sightings(const Freezes& freezes) {
    if (sightings_written_ != freezes.count) {
      std::shared_ptr<const Sightings> copy;
      for (Claim& claim : claims_) {
        if (claim.sightings) continue;
        if (!copy) copy = sightings_->copy();
        claim.sightings = copy;
      }
      sightings_written_ = freezes.count;
    }
    return *sightings_;
  }

  // -- snapshots ---------------------------------------------------------------------------------------------------

  void claim(std::uint32_t freeze) { claims_.push_back(Claim{freeze, rows_}); }

  const Claim& claim_of(std::uint32_t freeze) const {
    for (const Claim& each : claims_)
      if (each.freeze == freeze) return each;
    throw std::invalid_argument("this copy-on-write snapshot has been released");
  }

  // Returns the rows that no claim needs any more: the caller gives them back, without the lock of the bucket.
  KeptRows release(std::uint32_t freeze) {
    claims_.erase(std::remove_if(claims_.begin(), claims_.end(), [&](const Claim& each) { return each.freeze == freeze; }),
                  claims_.end());
    KeptRows unused;
    if (claims_.empty()) {
      kept_chunks_.clear();
      unused.swap(kept_rows_);
      return unused;
    }
    for (auto each = kept_chunks_.begin(); each != kept_chunks_.end();) {
      const auto [chunk, until] = each->first;
      each = is_wanted(chunk, each->second.written, until) ? std::next(each) : kept_chunks_.erase(each);
    }
    // A claim reads the earliest copy of a row that is not older than its freeze.
    std::uint32_t number = kNone, before = 0;
    for (auto each = kept_rows_.begin(); each != kept_rows_.end();) {
      const auto copy = each++;
      const std::uint32_t until = copy->first.second, after = copy->first.first == number ? before : 0;
      number = copy->first.first;
      before = until;
      const bool is_read = std::any_of(claims_.begin(), claims_.end(), [&](const Claim& claim) {
        return after < claim.freeze && claim.freeze <= until && number < claim.rows;
      });
      if (!is_read) unused.insert(kept_rows_.extract(copy));
    }
    return unused;
  }

  std::uint32_t find(std::int64_t id, std::uint64_t hash, const Claim& claim, const Layout& layout) const {
    return search(claim.index ? *claim.index : index_, hash, [&](std::uint32_t number) {
      return number < claim.rows && layout.id(row(number, claim, layout.bytes())) == id;
    });
  }

  const char* row(std::uint32_t number, const Claim& claim, std::size_t bytes) const {
    const auto found = kept_rows_.lower_bound({number, claim.freeze});
    return found != kept_rows_.end() && found->first.first == number ? found->second : row(number, bytes);
  }

  // Whether the row may have changed between an earlier freeze and the claim's.
  bool has_changed(std::uint32_t number, const Claim& claim, std::uint32_t since, const Freezes& freezes) const {
    const Changes& chunk = changes_of(number >> shift_, claim.freeze);
    if (chunk.written < since) return false;
    // Bits are those since the last mark before the chunk was written, which must not be later than the requested one.
    const bool too_late = since < freezes.mark_before || (since < freezes.mark && freezes.mark <= chunk.written);
    return too_late || chunk.changed >> place(number) & 1;
  }

  // Whether there were other changes since a freeze than updated, new and removed rows.
  bool was_reset(std::uint32_t since) const { return emptied_ >= since || forgotten_from_ > since; }

  // The ids whose rows were removed between an earlier freeze and the claim's; some may exist again.
  std::vector<std::int64_t> forgotten(const Claim& claim, std::uint32_t since) const {
    std::vector<std::int64_t> found;
    for (const Forgotten& each : forgotten_)
      if (since <= each.after && each.after < claim.freeze) found.push_back(each.id);
    return found;
  }

  const Sightings& sightings(const Claim& claim) const { return claim.sightings ? *claim.sightings : *sightings_; }

 private:
  static constexpr std::uint32_t kNumber = (1u << 24) - 1;

  // One of so many rows may be remembered as removed, a byte a row; and a few in any case.
  static constexpr std::uint32_t kForgottenShare = 16, kForgottenAnyway = 32;

  std::uint32_t chunk_rows() const { return std::uint32_t(1) << shift_; }

  // Of a row in its chunk.
  std::uint32_t place(std::uint32_t number) const { return number & (chunk_rows() - 1); }

  // Of a chunk.
  struct Changes {
    std::uint32_t written;  // how many freezes there were when it was last changed
    std::uint32_t changed;  // a bit a row: since the last mark before that
  };

  struct Chunk : Changes {
    char* rows;
    std::uint32_t saved;  // a bit a row: changed since freeze `written`, so that a copy is there if a claim needs one
  };

  // A row that was removed after so many freezes.
  struct Forgotten {
    std::int64_t id;
    std::uint32_t after;
  };

  // -- the index ---------------------------------------------------------------------------------------------------

  static std::size_t home(const Zeros& index, std::uint64_t hash) {
    return std::size_t(((hash & 0xffffffffu) * index.size()) >> 32);
  }

  template <class Condition>
  static std::uint32_t search(const Zeros& index, std::uint64_t hash, Condition condition) {
    const std::size_t size = index.size();
    if (!size) return kNone;
    const std::uint32_t tag = tag_of(hash);
    for (std::size_t at = home(index, hash);;) {
      const std::uint32_t entry = index[at];
      if (!entry) return kNone;
      if (entry >> 24 == tag && condition((entry & kNumber) - 1)) return (entry & kNumber) - 1;
      if (++at == size) at = 0;
    }
  }

  static void insert(Zeros& index, std::uint64_t hash, std::uint32_t number) {
    const std::size_t size = index.size();
    std::size_t at = home(index, hash);
    while (index[at])
      if (++at == size) at = 0;
    index[at] = tag_of(hash) << 24 | (number + 1);
  }

  // An index for so many rows with room for a sixth more; a large one has one of few sizes, with room for at least a
  // 32nd.
  static std::size_t index_size(std::size_t rows) {
    const std::size_t wanted = rows * 4 / 3 + 8;
    if (wanted * sizeof(std::uint32_t) < Shelves::kLeast) return wanted;
    return Shelves::fitting((rows + rows / 32) * 8 / 7 * sizeof(std::uint32_t)) / sizeof(std::uint32_t);
  }

  bool rebuild(std::size_t rows, const Layout& layout, Memory& memory, Budget* budget, bool beyond = false) {
    if (!index_.replace(index_size(rows), memory.indexes, budget, beyond)) return false;
    fill_index(layout);
    return true;
  }

  void fill_index(const Layout& layout) {
    const std::size_t bytes = layout.bytes();
    for (std::uint32_t number = 0; number < rows_; ++number)
      insert(index_, hash_of(layout.id(row(number, bytes))), number);
  }

  // Keeps the index before rows are renumbered. True if it was moved away.
  bool leave_index_to_claims() {
    std::shared_ptr<const Zeros> left;
    for (Claim& claim : claims_) {
      if (claim.index) continue;
      if (!left) left = std::make_shared<const Zeros>(std::move(index_));
      claim.index = left;
    }
    return left != nullptr;
  }

  // -- chunks ------------------------------------------------------------------------------------------------------

  // Whether a claim sees a chunk that was last changed before its freeze, and not again until the freeze `until`.
  bool is_wanted(std::uint32_t chunk, std::uint32_t written, std::uint32_t until) const {
    return std::any_of(claims_.begin(), claims_.end(), [&](const Claim& claim) {
      return written < claim.freeze && claim.freeze <= until && chunk << shift_ < claim.rows;
    });
  }

  const Changes& changes_of(std::uint32_t chunk, std::uint32_t freeze) const {
    auto found = kept_chunks_.lower_bound({chunk, freeze});
    const bool is_kept = found != kept_chunks_.end() && found->first.first == chunk && found->second.written < freeze;
    return is_kept ? found->second : chunks_[chunk];
  }

  // Before the first change of a chunk after a freeze.
  void note_change(std::uint32_t which, const Freezes& freezes) {
    Chunk& chunk = chunks_[which];
    if (is_wanted(which, chunk.written, freezes.count)) kept_chunks_.emplace(std::make_pair(which, freezes.count), chunk);
    if (chunk.written < freezes.mark) chunk.changed = 0;
    chunk.written = freezes.count;
    chunk.saved = 0;
  }

  // Before the first change of a row after a freeze.
  void save_row(std::uint32_t number, const Freezes& freezes, Memory& memory, std::size_t bytes) {
    const bool is_needed = std::any_of(claims_.begin(), claims_.end(), [&](const Claim& claim) {
      if (number >= claim.rows) return false;
      const auto found = kept_rows_.lower_bound({number, claim.freeze});
      return found == kept_rows_.end() || found->first.first != number;
    });
    if (!is_needed) return;
    char* copy = memory.take_copy();
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, row(number, bytes), bytes);
    kept_rows_.emplace(std::make_pair(number, freezes.count), copy);
  }

  void drop_last_chunk(const Freezes& freezes, Memory& memory, std::size_t bytes) {
    const std::uint32_t which = std::uint32_t(chunks_.size() - 1);
    for (std::uint32_t place = 0; place < chunk_rows(); ++place) touch((which << shift_) + place, freezes, memory, bytes);
    memory.rows.give(chunks_.back().rows);
    chunks_.pop_back();
  }

  // Before the first mark no difference is requested, nor is one from before the last mark but one.
  void note_forgotten(std::int64_t id, const Freezes& freezes) {
    if (!freezes.mark) {
      emptied_ = freezes.count;
      return;
    }
    if (forgotten_from_ < freezes.mark_before) {
      forgotten_from_ = freezes.mark_before;
      forgotten_.erase(std::remove_if(forgotten_.begin(), forgotten_.end(),
                                      [&](const Forgotten& each) { return each.after < forgotten_from_; }),
                       forgotten_.end());
    }
    forgotten_.push_back(Forgotten{id, freezes.count});
  }

  std::uint32_t rows_ = 0, shift_ = 0;
  // The number of freezes at the last reset of the bucket, and at the last change of the sightings.
  std::uint32_t emptied_ = 0, sightings_written_ = 0;
  // Since this freeze it is known which rows were removed.
  std::uint32_t forgotten_from_ = 0;
  std::vector<Forgotten> forgotten_;
  Zeros index_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<Sightings> sightings_ = std::make_unique<Sightings>();
  std::vector<Claim> claims_;
  // What was known of the changes of chunks, by number and the last freeze that saw them so.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Changes> kept_chunks_;
  KeptRows kept_rows_;
};

}  // namespace elasticdl
