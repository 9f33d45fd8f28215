// A Lender lends each of its objects to one thread at a time. Internal.
//
//   Lender<RowBuffer> buffers;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const Lender<RowBuffer>::Lease buffer,
//       buffers.Take([&] { return RowBuffer::Create(fields); }));
//   LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, index, context));
//
// There are as many objects as there were leases at once.
#ifndef LOCKSTEP_LOADER_DATASETS_LENDER_H_
#define LOCKSTEP_LOADER_DATASETS_LENDER_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {

// Thread-safety: thread-safe.
template <typename T>
class Lender {
 public:
  // Gives the object back at its end. The lender must live longer.
  // Thread-safety: thread-compatible.
  class Lease {
   public:
    Lease(Lender& owner, std::unique_ptr<T> object)
        : owner_(&owner), object_(std::move(object)) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) = delete;
    ~Lease() {
      if (object_ != nullptr) owner_->GiveBack(std::move(object_));
    }

    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

   private:
    Lender* owner_;
    std::unique_ptr<T> object_;
  };

  // Lends an object that is left over, or one that `make` makes, which returns
  // an absl::StatusOr<std::unique_ptr<T>>.
  template <typename Make>
  absl::StatusOr<Lease> Take(const Make& make) {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> object = std::move(free_.back());
        free_.pop_back();
        return Lease(*this, std::move(object));
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<T> object, make());
    // There is room for all objects, so that GiveBack neither allocates nor
    // throws.
    MutexLock lock(mutex_);
    free_.reserve(made_ + 1);
    ++made_;
    return Lease(*this, std::move(object));
  }

 private:
  void GiveBack(std::unique_ptr<T> object) {
    MutexLock lock(mutex_);
    free_.push_back(std::move(object));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<T>> free_ ABSL_GUARDED_BY(mutex_);
  size_t made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_LENDER_H_
