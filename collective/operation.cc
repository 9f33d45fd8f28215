#include "lockstep/collective/operation.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

namespace internal_collective {

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
  }
  return "invalid";
}

std::string Operation::Describe() const {
  std::string text = absl::StrCat(Name(kind), "(");
  const auto add = [&text](const auto&... what) {
    absl::StrAppend(&text, text.back() == '(' ? "" : ", ", what...);
  };
  switch (kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllToAll:
      add(Name(dtype));
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
    case OpKind::kScatter: {
      // What all ranks together give or get, part by part.
      const auto& parts = kind == OpKind::kScatter ? send_counts : recv_counts;
      std::string counts;
      for (const int64_t part : parts) {
        absl::StrAppend(&counts, counts.empty() ? "" : "+", part);
      }
      add(counts, " x ", Name(dtype));
      break;
    }
    case OpKind::kSendRecv:
      add("sends ", in.count, ", receives ", out.count, " x ", Name(dtype));
      break;
    default:
      add(in.data == nullptr && in.count == 0 ? out.count : in.count, " x ",
          Name(dtype));
  }
  if (kind == OpKind::kAllReduce || kind == OpKind::kReduce ||
      kind == OpKind::kReduceScatter) {
    add(lockstep::Name(op));
    // Every bit counts: ranks must not differ in the last one.
    if (scale != 1) add("scale ", absl::StrFormat("%.17g", scale));
  }
  if (root >= 0) add("root ", root);
  if (!name.empty()) add("name '", name, "'");
  return text + ")";
}

uint64_t Operation::Fingerprint(absl::string_view group) const {
  return DigestOf(absl::StrCat(group, "\n", sequence, "\n", Describe())).low;
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
