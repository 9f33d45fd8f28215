#include "lockstep/tools/cli/order_command.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/order.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/cli/sample_source.h"

namespace lockstep {
namespace {

// Computes the SHA-1 of bytes that come in pieces, in lower-case hexadecimal.
// Thread-safety: for one thread at a time.
class Sha1 {
 public:
  Sha1() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_, EVP_sha1(), nullptr);
  }
  ~Sha1() { EVP_MD_CTX_free(context_); }
  Sha1(const Sha1&) = delete;
  Sha1& operator=(const Sha1&) = delete;

  void Add(absl::Span<const int64_t> values) {
    EVP_DigestUpdate(context_, values.data(), 8 * values.size());
  }

  std::string Finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_, digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      absl::StrAppend(&text, absl::Hex(digest[i], absl::kZeroPad2));
    }
    return text;
  }

 private:
  EVP_MD_CTX* const context_;
};

// Returns INVALID_ARGUMENT unless the stream has these positions.
absl::Status CheckRange(const OrderCommand& command, int64_t size) {
  if (command.digest && (command.first != 0 || command.count.has_value())) {
    return absl::InvalidArgumentError(
        "--digest is over the whole order; leave out --first and --count");
  }
  if (command.first < 0 || command.first > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first should be from 0 to ", size,
                     ", the size of the order, but it is ", command.first));
  }
  const int64_t left = size - command.first;
  const int64_t count = command.count.value_or(left);
  if (count >= 0 && count <= left) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--count should be from 0 to ", left,
      command.first == 0
          ? ", the size of the order,"
          : absl::StrCat(", what is left of the order from position ",
                         command.first, " on,"),
      " but it is ", count, "; leave it out to print all"));
}

// Prints the indices of the positions [first, end).
absl::Status PrintIndices(IndexStream& stream, int64_t first, int64_t end,
                          OutputFormat format, std::ostream& out) {
  const bool is_json = format == OutputFormat::kJson;
  if (is_json) out << "[";
  if (format == OutputFormat::kCsv) out << "position,index\n";
  std::vector<int64_t> indices(4096);
  for (int64_t at = first; at < end && out;) {
    const auto piece =
        absl::MakeSpan(indices.data(), std::min<int64_t>(4096, end - at));
    LOCKSTEP_RETURN_IF_ERROR(stream.Read(at, 1, piece));
    if (format == OutputFormat::kCsv) {
      for (size_t i = 0; i < piece.size(); ++i) {
        out << at + static_cast<int64_t>(i) << "," << piece[i] << "\n";
      }
    } else if (is_json) {
      out << (at == first ? "" : ", ") << absl::StrJoin(piece, ", ");
    } else {
      out << absl::StrJoin(piece, "\n") << "\n";
    }
    at += static_cast<int64_t>(piece.size());
  }
  if (is_json) out << "]\n";
  return absl::OkStatus();
}

absl::Status PrintDigest(IndexStream& stream, OutputFormat format,
                         std::ostream& out) {
  Sha1 sha1;
  std::vector<int64_t> indices(4096);
  const int64_t size = stream.size();
  for (int64_t at = 0; at < size;) {
    const auto piece =
        absl::MakeSpan(indices.data(), std::min<int64_t>(4096, size - at));
    LOCKSTEP_RETURN_IF_ERROR(stream.Read(at, 1, piece));
    sha1.Add(piece);
    at += static_cast<int64_t>(piece.size());
  }
  const std::string digest = sha1.Finish();
  if (format == OutputFormat::kText) {
    out << digest << "\n";
    return absl::OkStatus();
  }
  RecordTable table({"size", "sha1"});
  table.AddRow({size, digest});
  if (format == OutputFormat::kCsv) {
    table.PrintCsv(out);
  } else {
    table.PrintJson(out);
    out << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunOrder(const CommandHost& host, const OrderCommand& command,
                      std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochs(command.epoch, 1));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
                            SampleSource::Open(host, command.samples));
  LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing, source->For(command.world));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream,
                            dealing.order->Open(command.epoch));
  const int64_t size = stream->size();
  LOCKSTEP_RETURN_IF_ERROR(CheckRange(command, size));
  if (command.digest) return PrintDigest(*stream, format, out);
  const int64_t count = command.count.value_or(size - command.first);
  return PrintIndices(*stream, command.first, command.first + count, format,
                      out);
}

}  // namespace lockstep
