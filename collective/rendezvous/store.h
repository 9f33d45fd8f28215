// Where ranks leave what others need to reach them: a map that all can see.
//
//   MemoryStore store;                          // ranks in one process
//   FileStore store("/shared/job-17");          // a folder that all can reach
//   LOCKSTEP_RETURN_IF_ERROR(store.Set("address", "10.0.0.7:29500"));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::string address,
//       store.Get("address", absl::Now() + absl::Seconds(5)));
//
// A job that has one already (etcd, its own service) implements Store over it.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_STORE_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_STORE_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"

namespace lockstep {

// Thread-safety: thread-safe. Keys are any text of 1 to 512 bytes, values any
// bytes, 1 MiB at most; a value that is set again replaces the old one.
class Store {
 public:
  virtual ~Store() = default;

  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;

  // Waits until the key is there. DEADLINE_EXCEEDED names it.
  virtual absl::StatusOr<std::string> Get(absl::string_view key,
                                          absl::Time until) = 0;
};

namespace internal_collective {

// INVALID_ARGUMENT says which sizes a key and a value may have.
absl::Status CheckStoreKey(absl::string_view key);
absl::Status CheckStoreValue(absl::string_view key, absl::string_view value);

}  // namespace internal_collective

// In this process.
class MemoryStore : public Store {
 public:
  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Time until) override;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string, std::less<>> values_
      ABSL_GUARDED_BY(mutex_);
};

// A file a key, in a folder that is made if need be; also on a file system that
// hosts share (NFS). A reader sees a whole value or none. The folder is made
// for this user alone; one that others may write is refused
// (FAILED_PRECONDITION), since they could tell the ranks whom to reach. What an
// earlier job has left there is found: have one a job.
class FileStore : public Store {
 public:
  explicit FileStore(absl::string_view folder) : folder_(folder) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Time until) override;

 private:
  const std::string folder_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_STORE_H_
