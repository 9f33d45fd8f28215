// Copies tokens of a file into a field, whose type may be another one.
// Internal.
//
//   LOCKSTEP_CHECK(TokensFit(DType::kU16, DType::kI32, /*vocabulary=*/0));
//   const TokenCopy copy = TokenCopyOf(DType::kU16, DType::kI32);
//   const int64_t wrong = copy(from, count, /*vocabulary=*/50257, to);
#ifndef LOCKSTEP_LOADER_DATASETS_TOKEN_COPY_H_
#define LOCKSTEP_LOADER_DATASETS_TOKEN_COPY_H_

#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Returns true if the type `to` holds all tokens: those of the vocabulary, or
// all values of `from` if there is none (0).
bool TokensFit(DType from, DType to, int64_t vocabulary);

// Copies tokens. If one is not in the vocabulary, it copies nothing and returns
// its number; otherwise it returns -1. A vocabulary of 0 has all. Both may
// be at any address.
using TokenCopy = int64_t (*)(const char* from, int64_t count,
                              uint64_t vocabulary, char* to);

// Requires that TokensFit.
TokenCopy TokenCopyOf(DType from, DType to);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_TOKEN_COPY_H_
