// An Introduction is what each rank tells rank 0 about itself.
//
//   const std::string text = Encode(introduction);
//   LOCKSTEP_ASSIGN_OR_RETURN(introduction, DecodeIntroduction(text));
#ifndef LOCKSTEP_TOOLS_DOCTOR_INTRODUCTION_H_
#define LOCKSTEP_TOOLS_DOCTOR_INTRODUCTION_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

struct Introduction {
  std::string host;
  std::string machine_id;
  std::string machine;     // its report, or "" if it has not looked
  std::string processors;  // on which it may run: "0-3,8"
  double quota = 0;        // in processors; 0 if none is known
  int64_t gpus = 0;        // that NCCL can use
  int64_t mbits = -1;      // of the interface for data, or -1
  double seconds = 0;      // until it gives up
};

std::string Encode(const Introduction& introduction);
absl::StatusOr<Introduction> DecodeIntroduction(absl::string_view text);

// Adds the processors of a list such as "0-3,8" to a set.
void AddProcessors(absl::string_view list, std::set<int>& processors);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_INTRODUCTION_H_
