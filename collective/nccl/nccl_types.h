// Lockstep's types and operators as those of NCCL.
//
//   const std::optional<NcclDataType> type = NcclTypeOf(op.dtype);
//   if (!type.has_value()) return absl::UnimplementedError(...);
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_TYPES_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_TYPES_H_

#include <cstdint>
#include <optional>

#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// The type of data that is only moved.
constexpr NcclDataType kNcclByte = NcclDataType::kUint8;

// Returns the type, or nothing if NCCL can't reduce it.
std::optional<NcclDataType> NcclTypeOf(DType dtype);

// Returns the operator, or nothing if NCCL has no such operator.
std::optional<NcclRedOp> NcclRedOpOf(ReduceOp op);

// Returns a number whose first bytes are `value` as a floating-point number of
// type `dtype`.
uint64_t NcclScalarOf(DType dtype, double value);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_TYPES_H_
