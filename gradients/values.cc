#include "lockstep/gradients/values.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/gradients_options.h"
#include "lockstep/gradients/memory_place.h"

namespace lockstep::internal_gradients {

absl::Status ShareValues(Communicator& group,
                         absl::Span<const GradientView> views,
                         const MemoryPlace& place, CallOptions call) {
  if (!place.on_host()) call.stream = place.stream();
  std::vector<Work> shared;
  absl::Status status;
  for (size_t i = 0; status.ok() && i < views.size(); ++i) {
    call.name = absl::StrCat("rank 0's values of parameter ", i);
    const absl::StatusOr<Work> work =
        group.Broadcast(views[i].values, views[i].values, /*root=*/0, call);
    status = work.status();
    if (work.ok()) shared.push_back(*work);
  }
  // All are waited for, since the caller may free the values after an error.
  if (!status.ok()) group.Abort(status);
  for (const Work& work : shared) {
    status.Update(place.on_host() ? work.Wait()
                                  : work.WaitOnStream(place.stream()));
  }
  return status;
}

absl::Status CompareValues(Communicator& group, const std::string& what,
                           absl::Span<const GradientView> views,
                           const MemoryPlace& place, const CallOptions& call) {
  Fingerprint values;
  std::vector<char> copy;
  for (const GradientView& view : views) {
    const int64_t bytes = view.values.count * SizeOf(view.values.dtype);
    const char* data = static_cast<const char*>(view.values.data);
    if (!place.on_host()) {
      copy.resize(bytes);
      LOCKSTEP_RETURN_IF_ERROR(place.Copy(data, copy.data(), bytes));
      LOCKSTEP_RETURN_IF_ERROR(place.Await());
      data = copy.data();
    }
    // A digest, since the values themselves are no text that could be shown.
    values.Add(view.name,
               DigestOf({data, static_cast<size_t>(bytes)}).ToString());
  }
  return CheckSame(group, what, values, call);
}

}  // namespace lockstep::internal_gradients
