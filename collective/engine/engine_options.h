// The options with which a rank joins a group.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/notifier.h"
#include "lockstep/collective/engine/exchange.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The options of one rank for one group.
struct EngineOptions {
  // These four are the same on all ranks. The key is unique in the job.
  std::string name = "world";
  std::string key = "world";
  std::string backend;
  // The ranks of the job, by rank of the group.
  std::shared_ptr<const std::vector<int>> job_ranks;

  // The time that an operation may take.
  absl::Duration deadline = absl::Minutes(10);
  // An operation that takes longer than this is slow, and rank 0 finds out why.
  absl::Duration slow = absl::Seconds(1);

  // It gets a text that names a slow operation and the ranks that it waits for.
  // It may be null.
  std::shared_ptr<internal_base::Notifier> on_slow;

  // Makes the transport. All fields of the context are set, except those that
  // only the world knows, such as the address of this rank.
  std::function<absl::StatusOr<AnyTransport>(TransportContext context)>
      make_transport;

  // True if the calling thread makes the group for another thread, which then
  // issues the operations.
  bool made_elsewhere = false;

  // In place of a transport, for ranks that are threads of one process: the
  // places where they meet. Otherwise null.
  std::shared_ptr<Exchanges> exchanges;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_ENGINE_OPTIONS_H_
