// What a worker does with the ids of a batch: finds those that are different, and sums the gradients of those that are
// the same.
//
// Ids are first put in the order of their buckets. The hash table in which one bucket's are compared then fits the
// nearest cache whatever the size of the batch, and the different ids come out as servers want them: the ids of a
// bucket side by side.

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

// Writes the different ids to `different` (room for n), bucket by bucket and in each in the order of their first sight;
// and for each id, where in that order it is, to `inverse`. Returns how many are different.
inline std::size_t find_unique(const std::int64_t* ids, std::size_t n, std::uint32_t buckets, std::int64_t* different,
                               std::int64_t* inverse) {
  if (n >= std::numeric_limits<std::uint32_t>::max()) throw std::length_error("too many ids in one call");
  struct Item {
    std::int64_t id;
    std::uint32_t hash, place;
  };
  std::unique_ptr<std::uint32_t[]> hashes(new std::uint32_t[n]);
  std::unique_ptr<Item[]> items(new Item[n]);
  std::vector<std::uint32_t> ends(buckets + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t hash = hash_of(ids[i]);
    // The bucket, from upper bits, here; the place in a table, from lower bits, there.
    hashes[i] = std::uint32_t(hash);
    ++ends[bucket_of(hash, buckets) + 1];
  }
  std::uint32_t most = 0;
  for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) {
    most = std::max(most, ends[bucket + 1]);
    ends[bucket + 1] += ends[bucket];
  }
  for (std::size_t i = 0; i < n; ++i)
    items[ends[bucket_of(hash_of(ids[i]), buckets)]++] = Item{ids[i], hashes[i], std::uint32_t(i)};

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
    std::int64_t* const first = different + found;
    std::uint32_t count = 0;
    for (std::uint32_t item = from; item < to; ++item) {
      const Item& each = items[item];
      std::uint32_t at = each.hash & mask;
      while (table[at] && first[table[at] - 1] != each.id) at = (at + 1) & mask;
      if (!table[at]) {
        first[count] = each.id;
        table[at] = ++count;
      }
      inverse[each.place] = std::int64_t(found) + table[at] - 1;
    }
    found += count;
    from = to;
  }
  return found;
}

// sums[which[i]] += rows[i], in order. `width` 0: it is known only at run time.
template <std::size_t width, class In>
void add_rows(const std::int64_t* which, const In* rows, std::size_t n, std::size_t given, float* sums) {
  constexpr std::size_t ahead = 16;
  const std::size_t numbers = width ? width : given;
  for (std::size_t i = 0; i < n; ++i) {
    if (i + ahead < n) {
      const char* next = reinterpret_cast<const char*>(sums + std::size_t(which[i + ahead]) * numbers);
      __builtin_prefetch(next, 1);
      __builtin_prefetch(next + numbers * sizeof(float) - 1, 1);
    }
    float* sum = sums + std::size_t(which[i]) * numbers;
    const In* row = rows + i * numbers;
    EACH(column, numbers) sum[column] += widen(row[column]);
  }
}

template <class In>
void sum_rows(const std::int64_t* which, const In* rows, std::size_t n, std::size_t width, float* sums,
              std::size_t count) {
  for (std::size_t i = 0; i < n; ++i)
    if (which[i] < 0 || std::size_t(which[i]) >= count) throw std::out_of_range("there is no such sum");
  std::fill_n(sums, count * width, 0.0f);
  if (std::is_same_v<In, float> && width == 16) return add_rows<16>(which, rows, n, width, sums);
  if (std::is_same_v<In, float> && width == 8) return add_rows<8>(which, rows, n, width, sums);
  if (std::is_same_v<In, float> && width == 1) return add_rows<1>(which, rows, n, width, sums);
  add_rows<0>(which, rows, n, width, sums);
}

}  // namespace elasticdl
