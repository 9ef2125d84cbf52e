// One bucket of a table: some rows, and the index by which they are found. Not thread-safe: the table locks it.
//
// A row is its id, the number of its updates if the optimizer counts them, the step at which it was last seen if rows
// may expire, its values, and its slots, one behind the other: whoever finds the row has its first values in the same
// cache line. Rows lie in chunks of 32 that never move; they are numbered without gaps.
//
// The index is an open-addressing table of four bytes an entry: eight bits of the id's hash, so that a wrong row is
// hardly ever looked at, and the row's number. It is between 75 and 88 % full and grows by a sixth, from the rows.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

#include "hashing.h"
#include "initializers.h"
#include "memory.h"
#include "rules.h"

namespace elasticdl {

// Where things are in a row. The same for all rows of a table.
struct Layout {
  std::size_t width, slots;
  bool counts_steps, tracks_seen;

  std::size_t header() const { return 8 + (counts_steps ? 4 : 0) + (tracks_seen ? 4 : 0); }
  std::size_t bytes() const { return header() + (1 + slots) * width * sizeof(float); }

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
  float* slot(char* row, std::size_t which) const { return values(row) + (which + 1) * width; }

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

class Bucket {
 public:
  static constexpr std::uint32_t kChunk = 32;
  static constexpr std::uint32_t kMostRows = (1u << 24) - 2;

  std::unordered_map<std::int64_t, Sighting> sightings;

  std::uint32_t rows() const { return rows_; }

  char* row(std::uint32_t number, std::size_t bytes) const {
    return chunks_[number / kChunk] + (number % kChunk) * bytes;
  }

  void prefetch_index(std::uint64_t hash) const {
    if (index_.size()) __builtin_prefetch(index_.data() + home(hash));
  }

  // The row that is most likely that of the hash, without looking at it; nullptr if there is none for sure.
  char* guess(std::uint64_t hash, std::size_t bytes) const {
    if (!index_.size()) return nullptr;
    const std::uint32_t tag = tag_of(hash);
    const std::size_t size = index_.size();
    for (std::size_t at = home(hash);;) {
      const std::uint32_t entry = index_[at];
      if (!entry) return nullptr;
      if (entry >> 24 == tag) return row((entry & kNumber) - 1, bytes);
      if (++at == size) at = 0;
    }
  }

  char* find(std::int64_t id, std::uint64_t hash, const Layout& layout) const {
    if (!index_.size()) return nullptr;
    const std::uint32_t tag = tag_of(hash);
    const std::size_t size = index_.size(), bytes = layout.bytes();
    for (std::size_t at = home(hash);;) {
      const std::uint32_t entry = index_[at];
      if (!entry) return nullptr;
      if (entry >> 24 == tag) {
        char* found = row((entry & kNumber) - 1, bytes);
        if (layout.id(found) == id) return found;
      }
      if (++at == size) at = 0;
    }
  }

  // A new row with nothing in it but its id; nullptr if there is no memory for it.
  char* add(std::int64_t id, std::uint64_t hash, const Layout& layout, Slabs& slabs, Budget* budget) {
    if (rows_ == kMostRows) return nullptr;
    if ((std::size_t(rows_) + 1) * 8 > index_.size() * 7 && !rebuild(rows_ + 1, layout, budget)) return nullptr;
    if (rows_ == chunks_.size() * kChunk) {
      char* fresh = slabs.take();
      if (!fresh) return nullptr;
      // By an eighth, for a vector by itself would double.
      if (chunks_.size() == chunks_.capacity()) chunks_.reserve(chunks_.size() + chunks_.size() / 8 + 4);
      chunks_.push_back(fresh);
    }
    char* made = row(rows_, layout.bytes());
    layout.set_id(made, id);
    insert(hash, rows_++);
    return made;
  }

  void clear(Slabs& slabs) {
    for (char* chunk : chunks_) slabs.give(chunk);
    std::vector<char*>().swap(chunks_);
    index_.clear();
    rows_ = 0;
  }

  // Removes rows, closes the gaps by moving others, and gives back what is no longer needed. Returns how many.
  template <class Condition>
  std::uint32_t remove_if(Condition condition, const Layout& layout, Slabs& slabs, Budget* budget) {
    const std::size_t bytes = layout.bytes();
    std::uint32_t kept = 0;
    for (std::uint32_t number = 0; number < rows_; ++number) {
      char* at = row(number, bytes);
      if (condition(at)) continue;
      if (kept != number) std::memcpy(row(kept, bytes), at, bytes);
      ++kept;
    }
    const std::uint32_t removed = rows_ - kept;
    if (!removed) return 0;
    rows_ = kept;
    while (chunks_.size() * kChunk >= std::size_t(kept) + kChunk) {
      slabs.give(chunks_.back());
      chunks_.pop_back();
    }
    chunks_.shrink_to_fit();
    if (!rebuild(kept, layout, budget)) {
      // No memory for a smaller index beside the old one: the old one will do.
      std::memset(&index_[0], 0, index_.size() * sizeof(std::uint32_t));
      fill_index(layout);
    }
    return removed;
  }

 private:
  static constexpr std::uint32_t kNumber = (1u << 24) - 1;

  static std::uint32_t tag_of(std::uint64_t hash) { return std::uint32_t(hash >> 32) & 0xffu; }

  std::size_t home(std::uint64_t hash) const { return std::size_t(((hash & 0xffffffffu) * index_.size()) >> 32); }

  void insert(std::uint64_t hash, std::uint32_t number) {
    const std::size_t size = index_.size();
    std::size_t at = home(hash);
    while (index_[at])
      if (++at == size) at = 0;
    index_[at] = tag_of(hash) << 24 | (number + 1);
  }

  // For so many rows with room for a sixth more.
  bool rebuild(std::size_t rows, const Layout& layout, Budget* budget) {
    if (!index_.replace(rows * 4 / 3 + 8, budget)) return false;
    fill_index(layout);
    return true;
  }

  void fill_index(const Layout& layout) {
    const std::size_t bytes = layout.bytes();
    for (std::uint32_t number = 0; number < rows_; ++number)
      insert(hash_of(layout.id(row(number, bytes))), number);
  }

  std::uint32_t rows_ = 0;
  Zeros index_;
  std::vector<char*> chunks_;
};

}  // namespace elasticdl
