// How many processors this process may use.
#ifndef LOCKSTEP_LOADER_CPUS_H_
#define LOCKSTEP_LOADER_CPUS_H_

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The smaller of its affinity and its cgroup's quota (both versions), rounded
// up; at least 1.
int UsableCpus();

// What LoaderOptions::num_workers is where nobody sets it: half of them, so
// that the trainer keeps the other half; at least 1.
int DefaultWorkers();

namespace internal_loader {
// The quota that text of cpu.max says ("max 100000", "150000 100000"), in
// processors; 0 for none.
double QuotaOf(absl::string_view cpu_max);
}  // namespace internal_loader

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_CPUS_H_
