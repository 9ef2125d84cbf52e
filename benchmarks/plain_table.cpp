// The peer of the benchmark `tables`: a straightforward table. Open addressing with keys and positions side by side, at
// most half full, rows in one array in the order of their creation, Adagrad in a loop. `fetched` adds the optimization
// with the largest effect for memory that does not fit into the cache: entries and rows are prefetched a group ahead.
//
// And the bound: a gather with known positions.

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int64_t kAhead = 16;

struct Entry {
  int64_t id;
  int64_t place;  // 0: empty
};

struct Table {
  int64_t width, mask, rows;
  Entry* entries;
  float *values, *slots;
};

// Huge pages, for the size of the table.
void* memory(size_t bytes) {
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) std::abort();
  madvise(found, bytes, MADV_HUGEPAGE);
  return found;
}

uint64_t hash(int64_t id) {
  uint64_t number = uint64_t(id);
  number = (number ^ (number >> 33)) * 0xff51afd7ed558ccdu;
  number = (number ^ (number >> 33)) * 0xc4ceb9fe1a85ec53u;
  return number ^ (number >> 33);
}

int64_t find_or_add(Table& table, int64_t id) {
  int64_t at = int64_t(hash(id)) & table.mask;
  while (table.entries[at].place && table.entries[at].id != id) at = (at + 1) & table.mask;
  if (!table.entries[at].place) {
    table.entries[at] = Entry{id, ++table.rows};
    for (int64_t i = 0; i < table.width; ++i) {
      table.values[(table.rows - 1) * table.width + i] = 0.01f * float(i);
      table.slots[(table.rows - 1) * table.width + i] = 0.1f;
    }
  }
  return table.entries[at].place - 1;
}

template <class Use>
void each_row(Table& table, const int64_t* ids, int64_t n, bool fetched, Use use) {
  if (!fetched) {
    for (int64_t i = 0; i < n; ++i) use(i, find_or_add(table, ids[i]));
    return;
  }
  int64_t places[kAhead];
  for (int64_t start = 0; start < n; start += kAhead) {
    const int64_t size = n - start < kAhead ? n - start : kAhead;
    for (int64_t i = 0; i < size; ++i)
      __builtin_prefetch(table.entries + (int64_t(hash(ids[start + i])) & table.mask));
    for (int64_t i = 0; i < size; ++i) {
      places[i] = find_or_add(table, ids[start + i]);
      __builtin_prefetch(table.values + places[i] * table.width);
      __builtin_prefetch(table.slots + places[i] * table.width);
    }
    for (int64_t i = 0; i < size; ++i) use(start + i, places[i]);
  }
}

}  // namespace

extern "C" {

Table* table_make(int64_t width, int64_t most_rows) {
  int64_t size = 1;
  while (size < 2 * most_rows) size *= 2;
  return new Table{width,
                   size - 1,
                   0,
                   static_cast<Entry*>(memory(size_t(size) * sizeof(Entry))),
                   static_cast<float*>(memory(size_t(most_rows * width) * sizeof(float))),
                   static_cast<float*>(memory(size_t(most_rows * width) * sizeof(float)))};
}

void table_gather(Table* table, const int64_t* ids, int64_t n, float* out, int fetched) {
  const int64_t width = table->width;
  each_row(*table, ids, n, fetched, [=](int64_t i, int64_t place) {
    std::memcpy(out + i * width, table->values + place * width, size_t(width) * sizeof(float));
  });
}

void table_adagrad(Table* table, const int64_t* ids, int64_t n, const float* gradients, float rate, int fetched) {
  const int64_t width = table->width;
  each_row(*table, ids, n, fetched, [=](int64_t i, int64_t place) {
    float* __restrict x = table->values + place * width;
    float* __restrict s = table->slots + place * width;
    const float* __restrict g = gradients + i * width;
    for (int64_t j = 0; j < width; ++j) {
      s[j] += g[j] * g[j];
      x[j] -= rate * g[j] / std::sqrt(s[j] + 1e-7f);
    }
  });
}

// Known positions: the bound by memory bandwidth.
void places_gather(Table* table, const int64_t* places, int64_t n, float* out) {
  const int64_t width = table->width;
  constexpr int64_t ahead = 32;
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) __builtin_prefetch(table->values + places[i + ahead] * width);
    std::memcpy(out + i * width, table->values + places[i] * width, size_t(width) * sizeof(float));
  }
}

}  // extern "C"
