// The memory of tables: a budget that several tables share, slabs from which a table's rows are allocated in equal
// pieces, and shelves of such slabs for indexes.
//
// Rows never move to grow, so nothing is copied and nothing is held twice. A slab is a range of addresses, which memory
// fills as it is used; full parts become huge pages, without which most of the time of a lookup in a large table is
// spent on address translation. A slab without used pieces is returned to the system.

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
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

  // Takes memory also beyond the limit, for updates that cannot be refused.
  void demand(std::size_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }

  void release(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  std::size_t limit() const { return limit_; }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

class Slabs {
 public:
  Slabs(std::size_t piece, std::shared_ptr<Budget> budget)
      : piece_(piece), slab_bytes_(up(std::max(piece, kSlab), kHuge)), budget_(std::move(budget)) {}
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  ~Slabs() {
    for (auto& [start, slab] : slabs_) unmap(start, slab);
  }

  // nullptr if there is no memory left, or none allowed; `beyond` ignores the budget.
  char* take(bool beyond = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!with_returned_.empty()) {
      char* start = *with_returned_.begin();
      Slab& slab = slabs_.find(start)->second;
      const std::uint32_t piece = slab.returned.back();
      slab.returned.pop_back();
      if (slab.returned.empty()) with_returned_.erase(start);
      spare_ -= piece_;
      ++slab.in_use;
      return start + std::size_t(piece) * piece_;
    }
    if ((!newest_ || (slabs_.find(newest_)->second.fresh + 1) * piece_ > slab_bytes_) && !map()) return nullptr;
    Slab& slab = slabs_.find(newest_)->second;
    const std::size_t needed = (slab.fresh + 1) * piece_;
    if (needed > slab.reserved && !reserve(slab, needed, beyond)) return nullptr;
    char* piece = newest_ + slab.fresh++ * piece_;
    ++slab.in_use;
    // A large table may reserve more than it needs at the moment; in a small one, only full parts become huge pages.
    const std::size_t ahead = bytes_ >= kLarge || expected_ >= kLarge ? kHuge - 1 : 0;
    for (; slab.huge + kHuge <= slab.fresh * piece_ + ahead; slab.huge += kHuge) make_huge(newest_ + slab.huge, !ahead);
    return piece;
  }

  // Reserves so much. Pages that are huge from the start need not be merged from small ones later.
  void expect(std::size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    expected_ = bytes;
  }

  void give(char* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::prev(slabs_.upper_bound(address));
    char* start = found->first;
    Slab& slab = found->second;
    slab.returned.push_back(std::uint32_t(std::size_t(address - start) / piece_));
    with_returned_.insert(start);
    spare_ += piece_;
    if (--slab.in_use) return;
    with_returned_.erase(start);
    spare_ -= slab.returned.size() * piece_;
    if (newest_ == start) newest_ = nullptr;
    unmap(start, slab);
    slabs_.erase(found);
  }

  // All of its part of the budget.
  std::size_t bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }

  // Freed bytes that the next allocation reuses.
  std::size_t spare() {
    std::lock_guard<std::mutex> lock(mutex_);
    return spare_;
  }

 private:
  struct Slab {
    std::size_t fresh = 0;     // pieces from here on were never allocated
    std::size_t reserved = 0;  // bytes, of the budget
    std::size_t huge = 0;      // bytes that lie in huge pages, if the system has them
    std::size_t in_use = 0;
    std::vector<std::uint32_t> returned;
  };

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kHuge = std::size_t(2) << 20;
  static constexpr std::size_t kSlab = std::size_t(64) << 20;
  // The budget is taken in steps of this size, or of this part of the present size.
  static constexpr std::size_t kLeast = std::size_t(64) << 10;
  static constexpr std::size_t kShare = 1024;
  static constexpr std::size_t kLarge = std::size_t(256) << 20;

  static std::size_t up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

  bool reserve(Slab& slab, std::size_t needed, bool beyond) {
    std::size_t wanted = std::min(slab_bytes_, up(needed + std::max(kLeast, bytes_ / kShare), kPage));
    if (!budget_->reserve(wanted - slab.reserved)) {
      wanted = up(needed, kPage);
      if (beyond) budget_->demand(wanted - slab.reserved);
      else if (!budget_->reserve(wanted - slab.reserved)) return false;
    }
    bytes_ += wanted - slab.reserved;
    slab.reserved = wanted;
    return true;
  }

  // Reserves addresses only: memory is allocated when it is first touched.
  bool map() {
    const std::size_t asked = slab_bytes_ + kHuge;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* found = mmap(nullptr, asked, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (found == MAP_FAILED) return false;
    // Huge pages begin at multiples of their size; the rest is returned.
    char* start = static_cast<char*>(found);
    char* aligned = reinterpret_cast<char*>(up(reinterpret_cast<std::uintptr_t>(start), kHuge));
    if (aligned > start) munmap(start, std::size_t(aligned - start));
    const std::size_t behind = kHuge - std::size_t(aligned - start);
    if (behind) munmap(aligned + slab_bytes_, behind);
    newest_ = aligned;
    slabs_.emplace(aligned, Slab());
    return true;
  }

  static void make_huge([[maybe_unused]] char* start, [[maybe_unused]] bool is_full) {
#ifdef MADV_HUGEPAGE
    madvise(start, kHuge, MADV_HUGEPAGE);
    // MADV_COLLAPSE: at once, where the kernel supports it; else the kernel does it later.
    if (is_full) madvise(start, kHuge, 25);
#endif
  }

  void unmap(char* start, const Slab& slab) {
    munmap(start, slab_bytes_);
    budget_->release(slab.reserved);
    bytes_ -= slab.reserved;
  }

  const std::size_t piece_, slab_bytes_;
  const std::shared_ptr<Budget> budget_;
  std::mutex mutex_;
  std::size_t bytes_ = 0, expected_ = 0, spare_ = 0;
  char* newest_ = nullptr;
  std::map<char*, Slab> slabs_;
  // Slabs by address: the lowest are filled first, so that the others may become empty.
  std::set<char*> with_returned_;
};

// Memory for many arrays of few sizes: side by side they fill huge pages, which none of them would by itself.
class Shelves {
 public:
  // Smaller arrays use the ordinary allocator.
  static constexpr std::size_t kLeast = std::size_t(4) << 10;

  // Returns the smallest of the sizes that is at least so large. Each is a sixth larger than the one before.
  static std::size_t fitting(std::size_t bytes) {
    std::size_t size = kLeast;
    while (size < bytes) size = size * 7 / 6 / kLine * kLine + kLine;
    return size;
  }

  // All 0; nullptr if there is no memory left. The size must be one that fits.
  void* take(std::size_t bytes) { return of(bytes).take(); }

  void give(void* address, std::size_t bytes) {
    clear(static_cast<char*>(address), bytes);
    of(bytes).give(static_cast<char*>(address));
  }

 private:
  static constexpr std::size_t kLine = 64, kPage = 4096;

  // Clears the array for the next user. Whole pages return to the system until then, since others of its size may stay.
  static void clear(char* start, std::size_t bytes) {
    char* end = start + bytes;
#ifdef __linux__
    const std::uintptr_t page = (reinterpret_cast<std::uintptr_t>(start) + kPage - 1) / kPage * kPage;
    const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(end) / kPage * kPage;
    if (!madvise(reinterpret_cast<void*>(page), last - page, MADV_DONTNEED)) {
      std::memset(start, 0, page - reinterpret_cast<std::uintptr_t>(start));
      start = reinterpret_cast<char*>(last);
    }
#endif
    std::memset(start, 0, std::size_t(end - start));
  }

  Slabs& of(std::size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    return by_size_.try_emplace(bytes, bytes, uncounted_).first->second;
  }

  std::mutex mutex_;
  // The user of an array counts its bytes in the budget; gaps between arrays are not counted.
  const std::shared_ptr<Budget> uncounted_ = std::make_shared<Budget>(0);
  std::map<std::size_t, Slabs> by_size_;
};

// Numbers that are all 0 at first, counted in the budget.
class Zeros {
 public:
  Zeros() = default;
  Zeros(Zeros&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)),
        shelves_(std::exchange(other.shelves_, nullptr)),
        budget_(std::exchange(other.budget_, nullptr)) {}
  Zeros& operator=(Zeros&&) = delete;
  ~Zeros() { clear(); }

  // Returns false, without a change, if there is no memory left, or none allowed; the latter only if it matters.
  bool replace(std::size_t count, Shelves& shelves, Budget* budget, bool beyond = false) {
    const std::size_t bytes = count * sizeof(std::uint32_t);
    if (beyond) budget->demand(bytes);
    else if (!budget->reserve(bytes)) return false;
    void* fresh = bytes < Shelves::kLeast ? std::calloc(bytes, 1) : shelves.take(bytes);
    if (!fresh) {
      budget->release(bytes);
      return false;
    }
    clear();
    data_ = static_cast<std::uint32_t*>(fresh);
    count_ = count;
    shelves_ = &shelves;
    budget_ = budget;
    return true;
  }

  void clear() {
    const std::size_t bytes = count_ * sizeof(std::uint32_t);
    if (bytes < Shelves::kLeast) std::free(data_);
    else shelves_->give(data_, bytes);
    if (budget_) budget_->release(bytes);
    data_ = nullptr;
    count_ = 0;
    budget_ = nullptr;
  }

  std::uint32_t& operator[](std::size_t at) { return data_[at]; }
  std::uint32_t operator[](std::size_t at) const { return data_[at]; }
  const std::uint32_t* data() const { return data_; }
  std::size_t size() const { return count_; }

 private:
  std::uint32_t* data_ = nullptr;
  std::size_t count_ = 0;
  Shelves* shelves_ = nullptr;
  Budget* budget_ = nullptr;
};

}  // namespace elasticdl
