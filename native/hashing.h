// One hash of an id serves all: its upper bits choose the bucket, which clients compute too and checkpoints rely on, so
// it never changes; lower bits choose the place within a bucket.

#pragma once

#include <cstdint>
#include <string>

namespace elasticdl {

// The finalizer of SplitMix64: every bit of the result depends on every bit of the number, and none are lost.
inline std::uint64_t mix(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

// FNV-1a.
inline std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char letter : text) hash = (hash ^ letter) * 0x100000001b3u;
  return hash;
}

inline std::uint64_t hash_of(std::int64_t id) { return mix(std::uint64_t(id)); }

// Upper bits: which of so many buckets.
inline std::uint32_t bucket_of(std::uint64_t hash, std::uint32_t buckets) {
  return std::uint32_t(((hash >> 32) * buckets) >> 32);
}

// Bits between those: they distinguish rows in a bucket's index, and divide a bucket into parts.
inline std::uint32_t tag_of(std::uint64_t hash) { return std::uint32_t(hash >> 32) & 0xffu; }

constexpr std::uint32_t kTags = 256;

// Which of at most so many parts of a bucket as there are tags.
inline std::uint32_t part_of(std::uint32_t tag, std::uint32_t parts) { return tag * parts / kTags; }

}  // namespace elasticdl
