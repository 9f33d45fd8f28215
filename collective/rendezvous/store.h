// A store is a map that all ranks can read and write. They leave in it what
// other ranks need to reach them.
//
//   MemoryStore store;                          // ranks in one process
//   FileStore store("/shared/job-17");          // a folder that all can reach
//   LOCKSTEP_RETURN_IF_ERROR(store.Set("address", "10.0.0.7:29500"));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::string address,
//       store.Get("address", absl::Now() + absl::Seconds(5)));
//
// If a job has such a map already (etcd, a service of its own), implement Store
// with it.
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

// A map from keys to values. Keys are any text of 1 to 512 bytes, and values
// any bytes, at most 1 MiB. Setting a key again replaces its value.
// Thread-safety: thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;

  // Waits until the key exists, and returns its value. DEADLINE_EXCEEDED names
  // the key.
  virtual absl::StatusOr<std::string> Get(absl::string_view key,
                                          absl::Time until) = 0;
};

namespace internal_collective {

// Return INVALID_ARGUMENT, which says the allowed sizes, if a key or a value is
// too long, or a key is empty.
absl::Status CheckStoreKey(absl::string_view key);
absl::Status CheckStoreValue(absl::string_view key, absl::string_view value);

}  // namespace internal_collective

// A store in this process.
// Thread-safety: thread-safe.
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

// A store of files in a folder, one for each key. The folder may be on a file
// system that several hosts share (NFS). It is made if it does not exist, for
// this user alone. A folder to which other users may write is refused
// (FAILED_PRECONDITION), since they could tell the ranks whom to connect to.
// Values of an earlier job in the folder are found, so use one folder for each
// job.
// Guarantees: a reader gets a whole value or none.
// Thread-safety: thread-safe.
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
