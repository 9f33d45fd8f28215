#include "lockstep/base/held.h"

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/steady_time.h"

// A sanitizer with its own heap defines this function.
extern "C" __attribute__((weak)) size_t
__sanitizer_get_current_allocated_bytes();  // NOLINT: as it is called

namespace lockstep {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr int64_t kMostKib = 1024;

int CountIn(const char* folder) {
  int count = 0;
  DIR* const entries = opendir(folder);
  while (entries != nullptr && readdir(entries) != nullptr) ++count;
  if (entries != nullptr) closedir(entries);
  return count;
}

// Returns the memory that is allocated in all arenas, or 0 if the C library
// can't tell. Memory that the arenas keep for later is left out, and so is the
// size of their pages, because both may change with every thread and at any
// time.
int64_t HeapKib() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) {
    return static_cast<int64_t>(__sanitizer_get_current_allocated_bytes()) /
           1024;
  }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd) / 1024;
#else
  return 0;
#endif
}

// Returns the size of the shared mappings. A line of the file looks like
// "7f2e14000000-7f2e14200000 rw-s 00000000 ...".
int64_t SharedKib() {
  int64_t kib = 0;
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; std::getline(mappings, line);) {
    std::istringstream words(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::string flags;
    words >> std::hex >> begin >> dash >> end >> flags;
    if (flags.size() == 4 && flags[3] == 's') {
      kib += static_cast<int64_t>(end - begin) / 1024;
    }
  }
  return kib;
}

}  // namespace

Held HeldNow() {
  Held held;
  held.files = CountIn("/proc/self/fd");
  held.threads = CountIn("/proc/self/task");
  int64_t all_pages = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> pages;
  held.resident_kib = pages * sysconf(_SC_PAGESIZE) / 1024;
  held.used_kib = HeapKib() + SharedKib();
  return held;
}

Held GrowthSince(const Held& before) {
  const SteadyTime until = After(kPatience);
  while (true) {
    const Held now = HeldNow();
    const Held growth = {now.files - before.files, now.threads - before.threads,
                         now.resident_kib - before.resident_kib,
                         now.used_kib - before.used_kib};
    const bool settled = growth.files <= 0 && growth.threads <= 0;
    if (settled || SteadyNow() >= until) return growth;
    usleep(1000);
  }
}

std::string WhatGrew(const Held& growth, int most) {
  if (growth.files <= most && growth.threads <= most &&
      growth.used_kib <= kMostKib) {
    return "";
  }
  return absl::StrCat("grew by ", growth.files, " files, ", growth.threads,
                      " threads and ", growth.used_kib, " KiB");
}

}  // namespace lockstep
