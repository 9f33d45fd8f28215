#include "lockstep/collective/operation.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"

namespace lockstep {

absl::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kBitAnd:
      return "bit_and";
    case ReduceOp::kBitOr:
      return "bit_or";
  }
  return "invalid";
}

absl::string_view Name(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kSend:
      return "send";
    case OpKind::kRecv:
      return "recv";
    case OpKind::kSendRecv:
      return "send_recv";
    case OpKind::kAllReduceShards:
      return "all_reduce_shards";
  }
  return "invalid";
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce ||
         kind == OpKind::kReduceScatter || kind == OpKind::kAllReduceShards;
}

namespace {

// Returns the counts of all parts together, for kinds with several parts.
const std::vector<int64_t>& PartsOf(const Operation& op) {
  return op.kind == OpKind::kScatter ? op.send_counts : op.recv_counts;
}

// Returns the count, for the other kinds.
int64_t CountOf(const Operation& op) {
  if (op.kind == OpKind::kAllReduceShards) return op.out.count;
  return op.in.data == nullptr && op.in.count == 0 ? op.out.count : op.in.count;
}

}  // namespace

std::string Operation::Describe() const {
  std::string text = absl::StrCat(Name(kind), "(");
  const auto add = [&text](const auto&... what) {
    absl::StrAppend(&text, text.back() == '(' ? "" : ", ", what...);
  };
  const auto parts = [this] { return absl::StrJoin(PartsOf(*this), "+"); };
  switch (kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllToAll:
      add(Name(dtype));
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
    case OpKind::kScatter:
      add(parts(), " x ", Name(dtype));
      break;
    case OpKind::kAllReduceShards:
      add(CountOf(*this), " x ", Name(dtype));
      add(parts(), " shards");
      break;
    case OpKind::kSendRecv:
      add("sends ", in.count, ", receives ", out.count, " x ", Name(dtype));
      break;
    default:
      add(CountOf(*this), " x ", Name(dtype));
  }
  if (Reduces(kind)) {
    add(lockstep::Name(op));
    // All digits are shown, since a scale may differ in the last bit.
    if (scale != 1) add("scale ", absl::StrFormat("%.17g", scale));
  }
  if (root >= 0) add("root ", root);
  if (!name.empty()) add("name '", name, "'");
  return text + ")";
}

std::string Operation::DescribeIn(absl::string_view group) const {
  return absl::StrCat(Describe(),
                      collective() ? absl::StrCat(" #", sequence) : "",
                      " of group '", group, "'");
}

// Digests the same values as Describe(), but does not make its text, since this
// runs for every call.
uint64_t Operation::Fingerprint(absl::string_view group) const {
  uint64_t digest = DigestOf(group).low;
  const auto add = [&digest](uint64_t value) {
    digest = (digest ^ value) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 29;
  };
  add(sequence);
  add(static_cast<uint64_t>(kind));
  if (kind != OpKind::kBarrier) add(static_cast<uint64_t>(dtype));
  switch (kind) {
    case OpKind::kBarrier:
    case OpKind::kAllToAll:
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
    case OpKind::kScatter:
      for (const int64_t part : PartsOf(*this)) add(part);
      break;
    case OpKind::kAllReduceShards:
      add(CountOf(*this));
      for (const int64_t part : PartsOf(*this)) add(part);
      break;
    case OpKind::kSendRecv:
      add(in.count);
      add(out.count);
      break;
    default:
      add(CountOf(*this));
  }
  if (Reduces(kind)) {
    add(static_cast<uint64_t>(op));
    uint64_t bits = 0;
    std::memcpy(&bits, &scale, sizeof(bits));
    add(bits);
  }
  add(root);
  if (!name.empty()) add(DigestOf(name).low);
  return digest;
}

namespace internal_collective {

absl::Status CheckName(absl::string_view name, bool required) {
  if (name.size() <= kLongestName && !(required && name.empty())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("name should have ", required ? 1 : 0, " to ", kLongestName,
                   " bytes, but has ", name.size()));
}

absl::Status CheckReduction(DType dtype, ReduceOp op, double scale) {
  const bool bits = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr;
  const bool compares = op == ReduceOp::kMin || op == ReduceOp::kMax;
  bool defined = true;
  if (IsFloatingPoint(dtype)) {
    defined = !bits;
  } else if (dtype == DType::kBool) {
    defined = bits || compares;
  } else {
    defined = op != ReduceOp::kAvg;
  }
  if (lockstep::Name(op) == "invalid" || !defined) {
    return absl::InvalidArgumentError(absl::StrCat(
        lockstep::Name(op), " is not defined for ", Name(dtype),
        ": floats have sum, avg, min, max and prod, integers sum, min, max, "
        "prod, bit_and and bit_or, bool min, max, bit_and and bit_or"));
  }
  const double most = dtype == DType::kF64 ? std::numeric_limits<double>::max()
                                           : std::numeric_limits<float>::max();
  if (!(std::abs(scale) <= most) || (scale != 1 && !IsFloatingPoint(dtype))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scale should be a number that ", dtype == DType::kF64 ? "f64" : "f32",
        " can hold, and 1 for integers ", "and bool, but for ", Name(dtype),
        " got scale=", scale));
  }
  return absl::OkStatus();
}

}  // namespace internal_collective
}  // namespace lockstep
