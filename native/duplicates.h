// Operations of a worker on the ids of a batch: finds the different ones, and sums the gradients of equal ones.
//
// Ids are first sorted by bucket. The hash table in which one bucket's are compared then fits the nearest cache
// whatever the size of the batch, and the different ids are in the order that servers need: the ids of a bucket side by
// side.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "halves.h"
#include "hashing.h"
#include "rules.h"

namespace elasticdl {

// Writes the different ids to `different`, bucket by bucket and in each in the order of their first occurrence; and the
// place of each id in that order to `inverse`. Returns the number of different ids. There is room for n of them, and
// one before them that may be read.
inline std::size_t find_unique(const std::int64_t* ids, std::size_t n, std::uint32_t buckets, std::int64_t* different,
                               std::int64_t* inverse) {
  if (n >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many ids in one call");
  struct Item {
    std::int64_t id;
    std::uint32_t hash, place;
  };
  std::unique_ptr<std::uint64_t[]> hashes(new std::uint64_t[n]);
  std::unique_ptr<Item[]> items(new Item[n]);
  std::vector<std::uint32_t> ends(buckets + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t hash = hash_of(ids[i]);
    hashes[i] = hash;
    ++ends[bucket_of(hash, buckets) + 1];
  }
  std::uint32_t most = 0;
  for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) {
    most = std::max(most, ends[bucket + 1]);
    ends[bucket + 1] += ends[bucket];
  }
  // The bucket, from upper bits, here; the place in a table, from lower bits, there.
  for (std::size_t i = 0; i < n; ++i)
    items[ends[bucket_of(hashes[i], buckets)]++] = Item{ids[i], std::uint32_t(hashes[i]), std::uint32_t(i)};

  std::size_t room = 4;
  while (room < 2 * std::size_t(most)) room *= 2;
  std::vector<std::uint32_t> table(room);
  std::size_t found = 0;
  std::uint32_t from = 0;
  for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) {
    const std::uint32_t to = ends[bucket];
    if (from == to) continue;
    std::size_t size = 4;
    while (size < 2 * std::size_t(to - from)) size *= 2;
    const std::uint32_t mask = std::uint32_t(size - 1);
    std::fill_n(table.begin(), size, 0);
    // Counted from 1: 0 means empty, so that new and known ids take the same branch, which no processor could predict.
    std::int64_t* const first = different + found - 1;
    std::uint32_t count = 0;
    for (std::uint32_t item = from; item < to; ++item) {
      const Item& each = items[item];
      std::uint32_t at = each.hash & mask, known = table[at];
      while (!((known == 0) | (first[known] == each.id))) {
        at = (at + 1) & mask;
        known = table[at];
      }
      const std::uint32_t is_new = known == 0;
      first[count + 1] = each.id;
      count += is_new;
      known += is_new * count;
      table[at] = known;
      inverse[each.place] = std::int64_t(found) + known - 1;
    }
    found += count;
    from = to;
  }
  return found;
}

// Throws unless all of them are from 0 to count - 1. Without a branch for each: an invalid one sets the sign.
inline void check_places(const std::int64_t* which, std::size_t n, std::size_t count) {
  std::uint64_t any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= std::uint64_t(which[i]) | (std::uint64_t(count) - 1 - std::uint64_t(which[i]));
  if (any >> 63) throw std::out_of_range("there is no such row");
}

// The number of rows prefetched at once.
constexpr std::size_t kRowsAhead = 16;

// sums[which[i]] += rows[i], in order. `width` 0: known only at run time.
template <std::size_t width, class In>
INSIDE void add_rows(const std::int64_t* which, const In* rows, std::size_t n, std::size_t given, float* sums) {
  const std::size_t numbers = width ? width : given;
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kRowsAhead < n) {
      const char* next = reinterpret_cast<const char*>(sums + std::size_t(which[i + kRowsAhead]) * numbers);
      __builtin_prefetch(next, 1);
      __builtin_prefetch(next + numbers * sizeof(float) - 1, 1);
    }
    float* sum = sums + std::size_t(which[i]) * numbers;
    const In* row = rows + i * numbers;
    EACH(column, numbers) sum[column] += widen(row[column]);
  }
}

template <class In>
INSIDE void add_rows_of(const std::int64_t* which, const In* rows, std::size_t n, std::size_t width, float* sums) {
  if (std::is_same_v<In, float> && width == 16) return add_rows<16>(which, rows, n, width, sums);
  if (std::is_same_v<In, float> && width == 8) return add_rows<8>(which, rows, n, width, sums);
  if (std::is_same_v<In, float> && width == 1) return add_rows<1>(which, rows, n, width, sums);
  add_rows<0>(which, rows, n, width, sums);
}

#ifdef HAS_WIDE
template <class In>
WIDE void add_rows_wide(const std::int64_t* which, const In* rows, std::size_t n, std::size_t width, float* sums) {
  add_rows_of(which, rows, n, width, sums);
}
#endif

template <class In>
void sum_rows(const std::int64_t* which, const In* rows, std::size_t n, std::size_t width, float* sums,
              std::size_t count) {
  check_places(which, n, count);
  std::fill_n(sums, count * width, 0.0f);
#ifdef HAS_WIDE
  if (is_wide()) return add_rows_wide(which, rows, n, width, sums);
#endif
  add_rows_of(which, rows, n, width, sums);
}

// out[i] = rows[which[i]]: the rows that a model sees, of those of different ids.
template <std::size_t width>
void copy_rows(const std::int64_t* which, const float* rows, std::size_t n, std::size_t given, float* out) {
  const std::size_t numbers = width ? width : given;
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kRowsAhead < n) {
      const char* next = reinterpret_cast<const char*>(rows + std::size_t(which[i + kRowsAhead]) * numbers);
      __builtin_prefetch(next);
      __builtin_prefetch(next + numbers * sizeof(float) - 1);
    }
    std::memcpy(out + i * numbers, rows + std::size_t(which[i]) * numbers, numbers * sizeof(float));
  }
}

inline void spread_rows(const std::int64_t* which, const float* rows, std::size_t n, std::size_t width, std::size_t count,
                        float* out) {
  check_places(which, n, count);
  switch (width) {
    case 1:
      return copy_rows<1>(which, rows, n, width, out);
    case 8:
      return copy_rows<8>(which, rows, n, width, out);
    case 16:
      return copy_rows<16>(which, rows, n, width, out);
    case 32:
      return copy_rows<32>(which, rows, n, width, out);
    default:
      return copy_rows<0>(which, rows, n, width, out);
  }
}

}  // namespace elasticdl
