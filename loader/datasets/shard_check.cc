// Prints what TarFiles reads of tar files, for tools/ci/shards:
//
//   shard_check [--write_index] EXTENSIONS FILE...
//
// EXTENSIONS is a list such as "jpg,cls". A line has the key, the extension,
// the size and the CRC-32C of a member.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::Crc32c;

// Prints the members of one extension.
absl::Status Print(const std::string& file, const std::string& extension,
                   TarIndex index) {
  TarFilesOptions options;
  options.files = {file};
  options.fields = {{extension, {extension}}};
  options.fields[0].content = TarContent::kBytes;
  options.fields[0].missing = TarMissing::kSkip;
  options.key = true;
  options.index = index;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<TarFiles> dataset,
                            TarFiles::Create(std::move(options)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<RowBuffer> buffer,
                            RowBuffer::Create(dataset->fields()));
  for (int64_t i = 0; i < dataset->size(); ++i) {
    buffer->Clear();
    LOCKSTEP_RETURN_IF_ERROR(buffer->Read(*dataset, i));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> content,
                              buffer->row().WrittenBytes(0));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> key,
                              buffer->row().WrittenBytes(1));
    const uint32_t crc =
        Crc32c(absl::string_view(content.data(), content.size()));
    std::printf("%.*s %s %zu %08x\n", static_cast<int>(key.size()), key.data(),
                extension.c_str(), content.size(), crc);
  }
  return absl::OkStatus();
}

int Main(absl::Span<char*> arguments) {
  TarIndex index = TarIndex::kRead;
  if (!arguments.empty() &&
      absl::string_view(arguments[0]) == "--write_index") {
    index = TarIndex::kWrite;
    arguments.remove_prefix(1);
  }
  if (arguments.size() < 2) {
    std::fprintf(stderr, "shard_check [--write_index] EXTENSIONS FILE...\n");
    return 2;
  }
  const std::vector<std::string> extensions = absl::StrSplit(arguments[0], ',');
  for (const char* const file : arguments.subspan(1)) {
    for (const std::string& extension : extensions) {
      const absl::Status status = Print(file, extension, index);
      // A file may have no member of this extension.
      if (status.ok() || absl::IsInvalidArgument(status)) continue;
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(absl::MakeSpan(argv + 1, argc - 1));
}
