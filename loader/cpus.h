// The number of processors that this process may use.
#ifndef LOCKSTEP_LOADER_CPUS_H_
#define LOCKSTEP_LOADER_CPUS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the smaller of the process's affinity and its cgroup's quota (version
// 1 or 2), rounded up; at least 1.
int UsableCpus();

// Returns the default of LoaderOptions::num_workers: half of the usable
// processors, so that the trainer keeps the other half; at least 1.
int DefaultWorkers();

namespace internal_loader {
// Returns the quota in the text of a file cpu.max ("max 100000",
// "150000 100000"), in processors; 0 if there is none.
double QuotaOf(absl::string_view cpu_max);

// Returns the smallest quota of this process's cgroup and the groups above it,
// in processors; 0 if there is none. The files of the system are below `root`.
double CpuQuota(const std::string& root = "");

// Returns the number of processors on which this process may run.
int AffineCpus();
}  // namespace internal_loader

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_CPUS_H_
