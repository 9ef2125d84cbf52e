// Where the memory of tables comes from: a budget that several tables share, and slabs of which a table's rows are
// given out in equal pieces.
//
// Rows never move to grow, so nothing is copied and nothing is held twice. Slabs grow with the table (a small part of it
// each), so that small tables are small and large ones lie in few, huge pages. A slab none of whose pieces is in use
// goes back to the system.

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace elasticdl {

class Budget {
 public:
  // 0: no limit.
  explicit Budget(std::size_t limit) : limit_(limit) {}

  bool reserve(std::size_t bytes) {
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (limit_ && (bytes > limit_ || used > limit_ - bytes)) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  void release(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  std::size_t limit() const { return limit_; }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

class Slabs {
 public:
  Slabs(std::size_t piece, std::shared_ptr<Budget> budget) : piece_(piece), budget_(std::move(budget)) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  ~Slabs() {
    for (auto& [start, slab] : slabs_) unmap(start, slab.bytes);
  }

  // nullptr if there is no memory left, or none allowed.
  char* take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (with_room_.empty() && !grow()) return nullptr;
    char* start = *with_room_.begin();
    Slab& slab = slabs_.find(start)->second;
    std::uint32_t piece;
    if (slab.returned.empty()) {
      piece = slab.fresh++;
    } else {
      piece = slab.returned.back();
      slab.returned.pop_back();
    }
    if (++slab.in_use == slab.pieces) with_room_.erase(start);
    return start + std::size_t(piece) * piece_;
  }

  void give(char* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::prev(slabs_.upper_bound(address));
    char* start = found->first;
    Slab& slab = found->second;
    slab.returned.push_back(std::uint32_t(std::size_t(address - start) / piece_));
    with_room_.insert(start);
    if (--slab.in_use == 0) {
      with_room_.erase(start);
      unmap(start, slab.bytes);
      slabs_.erase(found);
    }
  }

 private:
  struct Slab {
    std::size_t bytes;
    std::uint32_t pieces;
    std::uint32_t fresh = 0;  // pieces from here on were never given out
    std::uint32_t in_use = 0;
    std::vector<std::uint32_t> returned;
  };

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kHuge = std::size_t(2) << 20;
  static constexpr std::size_t kFirst = std::size_t(64) << 10;
  static constexpr std::size_t kMost = std::size_t(32) << 20;
  static constexpr std::size_t kShare = 256;

  static std::size_t up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

  bool grow() {
    const std::size_t least = up(piece_, kPage);
    std::size_t bytes = std::max({least, kFirst, std::min(bytes_ / kShare, kMost)});
    // So many pieces fill pages exactly: their sizes are multiples of 128.
    const std::size_t exact = piece_ * (kPage / 128);
    if (bytes >= kHuge) bytes = up(bytes, kHuge);
    else if (bytes * 4 >= exact) bytes = up(bytes, exact);
    else bytes = up(up(bytes, piece_), kPage);
    return map(bytes) || (bytes > least && map(least));
  }

  bool map(std::size_t bytes) {
    if (!budget_->reserve(bytes)) return false;
    const bool huge = bytes % kHuge == 0;
    const std::size_t asked = huge ? bytes + kHuge : bytes;
    void* found = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) {
      budget_->release(bytes);
      return false;
    }
    char* start = static_cast<char*>(found);
    if (huge) {
      // Huge pages begin at multiples of their size; what is around goes back.
      char* aligned = reinterpret_cast<char*>(up(reinterpret_cast<std::uintptr_t>(start), kHuge));
      if (aligned > start) munmap(start, std::size_t(aligned - start));
      const std::size_t behind = asked - std::size_t(aligned - start) - bytes;
      if (behind) munmap(aligned + bytes, behind);
      start = aligned;
#ifdef MADV_HUGEPAGE
      madvise(start, bytes, MADV_HUGEPAGE);
#endif
    }
    Slab slab;
    slab.bytes = bytes;
    slab.pieces = std::uint32_t(bytes / piece_);
    slabs_.emplace(start, std::move(slab));
    with_room_.insert(start);
    bytes_ += bytes;
    return true;
  }

  void unmap(char* start, std::size_t bytes) {
    munmap(start, bytes);
    budget_->release(bytes);
    bytes_ -= bytes;
  }

  const std::size_t piece_;
  const std::shared_ptr<Budget> budget_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::map<char*, Slab> slabs_;
  // By address: the lowest are filled first, so that the others may become empty.
  std::set<char*> with_room_;
};

// Memory for numbers that are all 0 at first, counted in the budget.
class Zeros {
 public:
  Zeros() = default;
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  ~Zeros() { clear(); }

  // False, and nothing has changed, if there is no memory left, or none allowed.
  bool replace(std::size_t count, Budget* budget) {
    if (!budget->reserve(count * sizeof(std::uint32_t))) return false;
    void* fresh = allocate(count * sizeof(std::uint32_t));
    if (!fresh) {
      budget->release(count * sizeof(std::uint32_t));
      return false;
    }
    clear();
    data_ = static_cast<std::uint32_t*>(fresh);
    count_ = count;
    budget_ = budget;
    return true;
  }

  void clear() {
    if (count_ * sizeof(std::uint32_t) >= kLarge) munmap(data_, count_ * sizeof(std::uint32_t));
    else std::free(data_);
    if (budget_) budget_->release(count_ * sizeof(std::uint32_t));
    data_ = nullptr;
    count_ = 0;
    budget_ = nullptr;
  }

  std::uint32_t& operator[](std::size_t at) { return data_[at]; }
  std::uint32_t operator[](std::size_t at) const { return data_[at]; }
  const std::uint32_t* data() const { return data_; }
  std::size_t size() const { return count_; }

 private:
  // From here on it goes back to the system when it is no longer needed, instead of leaving a hole in the heap.
  static constexpr std::size_t kLarge = std::size_t(32) << 10;

  static void* allocate(std::size_t bytes) {
    if (bytes < kLarge) return std::calloc(bytes, 1);
    void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? nullptr : found;
  }

  std::uint32_t* data_ = nullptr;
  std::size_t count_ = 0;
  Budget* budget_ = nullptr;
};

}  // namespace elasticdl
