// Reads a piece of the input as the file of a key in a store's folder: the
// value is what stands behind the key, or the file is refused. A value that is
// set under a key of the input comes back.
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: of the standard library
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep {
namespace {

constexpr char kKey[] = "lockstep/job/address";
constexpr char kFile[] = "lockstep%2fjob%2faddress";

void Check(FuzzInput input) {
  static const std::string& folder = *new std::string(FuzzFolder());
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::filesystem::remove(file);
  }
  FileStore store(folder);
  const absl::string_view bytes = input.Piece();
  std::ofstream(absl::StrCat(folder, "/", kFile), std::ios::binary) << bytes;
  const absl::StatusOr<std::string> found =
      store.Get(kKey, absl::InfinitePast());
  LOCKSTEP_CHECK(found.ok() || absl::IsDataLoss(found.status()));
  LOCKSTEP_CHECK(!found.ok() || absl::StrCat(kFile, "\n", *found) == bytes);
  fuzz_accepts += found.ok() ? 1 : 0;

  const absl::string_view key = input.Piece();
  const absl::string_view value = input.Rest();
  const absl::Status set = store.Set(key, value);
  if (!internal_collective::CheckStoreKey(key).ok()) {
    LOCKSTEP_CHECK(absl::IsInvalidArgument(set));
    return;
  }
  LOCKSTEP_CHECK(set.ok());
  const absl::StatusOr<std::string> again =
      FileStore(folder).Get(key, absl::InfinitePast());
  LOCKSTEP_CHECK(again.ok() && *again == value);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::Check(lockstep::FuzzInput(data, size));
  return 0;
}
