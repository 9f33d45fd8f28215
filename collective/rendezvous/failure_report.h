// A rank that fails leaves its error with the launcher, so that the launcher
// can name the rank whose error came first, in that rank's own words. Main of
// session/main.h does this. A trainer with its own main function does it, too:
//
//   const absl::Status status = Train(*world);
//   if (!status.ok()) {
//     std::cerr << ToLines(status) << '\n';
//     ReportFailure(status);
//     return 1;
//   }
//
// Call ReportFailure before the World is destroyed: on rank 0, the destructor
// of World waits for other ranks, and the launcher may end rank 0 meanwhile.
//
// `lockstep launch` keeps the reports in memory, and gives the ranks a path to
// it in the variable LOCKSTEP_FAILURES. A rank writes only to such memory, not
// to any other file that may have this path, for example because the rank is in
// a container of its own.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_FAILURE_REPORT_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_FAILURE_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/blame.h"

namespace lockstep {

// The exit codes after which `lockstep launch` does not start the ranks again.
// With the first one, a rank has found a mistake before its first step, so a
// restart would not help. With the second one, the ranks were asked to stop.
inline constexpr int kExitForMistake = 2;
inline constexpr int kExitForStop = 143;

// Tells the launcher why this rank fails, with the blame of `why`. If it has
// none, this rank is to blame. Does nothing if the launcher does not ask for
// it, or if the launcher is gone. Requires: no other thread sets an environment
// variable at the same time.
void ReportFailure(const absl::Status& why);

// The report of one rank.
struct FailureReport {
  int64_t rank = -1;
  Blame blame;
  // The code and the message, in one line of at most 1,000 bytes of UTF-8.
  std::string text;
};

// The launcher's side.
// Thread-safety: for one thread at a time.
class FailureReports {
 public:
  // Returns an empty list of reports. If the system gives no memory for it, the
  // ranks have no path, and report nothing.
  static FailureReports Create();

  // Returns the value of LOCKSTEP_FAILURES for the ranks, or "" without memory.
  std::string path() const;

  // Returns the reports that have come until now, in the order in which they
  // came. Lines that are no reports are left out.
  std::vector<FailureReport> Read() const;

 private:
  explicit FailureReports(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_FAILURE_REPORT_H_
