// What a group between processes is made by.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

struct EngineOptions {
  // The same on all ranks. The key is unique in the job.
  std::string name = "world";
  std::string key = "world";
  std::string backend;
  std::vector<int> job_ranks;  // by rank of the group

  // How long an operation may take.
  absl::Duration deadline = absl::Minutes(10);
  // From when on it counts as slow, and the ranks find out why.
  absl::Duration slow = absl::Seconds(1);

  // Where a device does the collectives: whether ranks agree on each one before
  // any of them launches it.
  bool strict = false;

  // Called with what is slow and whom it waits for, by a thread of Lockstep.
  // Must not block.
  std::function<void(absl::string_view)> on_slow;

  // Makes the transport; `context` has everything but the address of this rank.
  std::function<absl::StatusOr<AnyTransport>(TransportContext context)>
      make_transport;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_
