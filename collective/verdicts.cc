#include "lockstep/collective/verdicts.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective::verdicts {
namespace {

// Returns the code and the message, without the payloads.
std::string InWords(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      status.message());
}

std::string InMilliseconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

// Returns "; A; B".
std::string Behind(const std::vector<std::string>& said) {
  std::string text;
  for (const std::string& each : said) absl::StrAppend(&text, "; ", each);
  return text;
}

// Returns "; A", or "" if there is no A.
std::string After(absl::string_view last) {
  return last.empty() ? "" : absl::StrCat("; ", last);
}

}  // namespace

std::string ListRanks(const std::vector<int>& ranks, size_t longest) {
  std::string text = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "));
  if (text.size() <= longest) return text;
  return absl::StrCat(ranks.size(), " ranks, ", text.substr(0, longest),
                      ", ...");
}

std::string DescribeLastIssued(absl::string_view rank,
                               absl::string_view operation) {
  return absl::StrCat(
      rank, operation.empty() ? " has issued nothing" : " last issued ",
      operation);
}

std::string DescribeLastWords(absl::string_view issued, absl::Duration ago) {
  return absl::StrCat("had ",
                      issued.empty() ? "issued nothing" : "last issued ",
                      issued, " as of ", InMilliseconds(ago), " ago");
}

std::string DescribeSilence(absl::string_view last_words,
                            absl::Duration silent) {
  return absl::StrCat(
      last_words.empty() ? "has not told yet what it has issued" : last_words,
      ", and is silent for ", InMilliseconds(silent));
}

std::string ResultsAreSuspect(uint64_t number) {
  return absl::StrCat(
      "; it may have ended all the same, and what came of the group's "
      "operations from #",
      number, " on is suspect");
}

absl::Status OperationsDiffer(absl::string_view group, uint64_t first,
                              uint64_t last, const std::vector<Issued>& issued,
                              absl::string_view suspect) {
  std::string text = absl::StrCat("the ranks of group '", group, "' differ");
  if (last > 0) {
    absl::StrAppend(&text, " at operation ",
                    first < last
                        ? absl::StrCat("#", first, " or one after it, up to ")
                        : "",
                    "#", last);
  }
  absl::StrAppend(&text, ": ");
  for (const Issued& each : issued) {
    absl::StrAppend(&text, &each == &issued.front() ? "" : ", and ", each.rank,
                    " issued ",
                    each.operation.empty() ? "something else" : each.operation);
  }
  return absl::FailedPreconditionError(absl::StrCat(text, suspect));
}

absl::Status SendAndRecvDiffer(absl::string_view group, const Issued& send,
                               const Issued& recv) {
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks of group '", group, "' differ: ", send.rank,
                   " issued ", send.operation, " to ", recv.rank,
                   ", which issued ", recv.operation, " from it"));
}

absl::Status CountsDiffer(absl::string_view operation,
                          const CountsThatDiffer& counts) {
  return absl::FailedPreconditionError(
      absl::StrCat(operation, ": ", counts.from, " sends ", counts.gives,
                   " elements to ", counts.to, ", which takes ", counts.takes));
}

absl::Status PropertiesDiffer(absl::string_view what, absl::string_view group,
                              const Property& one, const Property& other) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the ranks differ in the ", what, " of group '", group, "': ", one.rank,
      " has ", one.value, ", and ", other.rank, " has ", other.value));
}

absl::Status DidNotCome(absl::string_view operation, absl::string_view who,
                        absl::Duration deadline,
                        const std::vector<std::string>& said) {
  return absl::DeadlineExceededError(
      absl::StrCat(operation, ": ", who, " did not come within ",
                   absl::FormatDuration(deadline), Behind(said)));
}

absl::Status WasNotDone(absl::string_view operation, absl::Duration deadline,
                        const std::vector<std::string>& said) {
  return absl::DeadlineExceededError(
      absl::StrCat(operation, ": all ranks came, and it was not done within ",
                   absl::FormatDuration(deadline),
                   said.empty() ? "; its data does not get through, or is slow"
                                : Behind(said)));
}

absl::Status MissingIsNotKnown(absl::string_view operation,
                               absl::Duration deadline, absl::string_view hub) {
  return absl::DeadlineExceededError(absl::StrCat(
      operation, " did not end within ", absl::FormatDuration(deadline),
      ", and who is missing is not known: ", hub));
}

std::string IsSlow(absl::string_view operation, absl::string_view who,
                   const std::vector<std::string>& said) {
  return absl::StrCat(operation, " is slow: ",
                      who.empty()
                          ? "all ranks have come, and its data is on the way"
                          : absl::StrCat(who, " have not come yet"),
                      Behind(said));
}

absl::Status Deadlock(const std::vector<WaitsFor>& waits) {
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks use groups in different orders, and wait for each other: ",
      absl::StrJoin(waits, "; ", [](std::string* out, const WaitsFor& wait) {
        absl::StrAppend(out, wait.operation, " waits for ", wait.rank,
                        ", which waits for ", wait.its_operation);
      })));
}

absl::Status HasLeftGroup(absl::string_view operation, absl::string_view rank,
                          absl::string_view last) {
  return absl::UnavailableError(
      absl::StrCat(operation, ": ", rank, " has left the group", After(last)));
}

absl::Status HasDropped(absl::string_view group, int rank,
                        absl::string_view last) {
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " has dropped its communicator of group '",
                   group, "'", After(last)));
}

absl::Status LeftBeforeJoining(absl::string_view parent, int rank) {
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " of group '", parent,
                   "' has left it before it joined this one"));
}

absl::Status CannotJoinAnyMore(absl::string_view parent, int rank,
                               absl::string_view group) {
  return absl::UnavailableError(
      absl::StrCat("rank ", rank, " of group '", parent,
                   "' has left it, and so can't join the group '", group, "'"));
}

absl::Status IsGone(absl::string_view rank, int job_rank,
                    const absl::Status& how, absl::string_view last_words,
                    const absl::Status& told) {
  std::string text(how.message());
  if (how.ok()) text = absl::StrCat(rank, " has left the job");
  if (!last_words.empty()) absl::StrAppend(&text, "; it ", last_words);
  if (how.ok() && !told.ok()) {
    absl::StrAppend(&text, "; it had been told: ", told.message());
  }
  const absl::Status gone(
      how.ok() ? absl::StatusCode::kUnavailable : how.code(), text);
  if (how.ok() && !told.ok()) {
    return WithBlame(gone, *BlameOf(BlamingNobody(told)));
  }
  return WithBlame(gone, BlameFor(how.ok() ? gone : how, job_rank));
}

absl::Status AfterFirstLoss(const absl::Status& why,
                            const absl::Status& first_loss) {
  if (!absl::IsUnavailable(why) || first_loss.ok() ||
      absl::StrContains(why.message(), first_loss.message())) {
    return why;
  }
  absl::Status after = absl::UnavailableError(
      absl::StrCat(why.message(), "; before that, ", first_loss.message()));
  const std::optional<Blame> blame = BlameOf(first_loss);
  return blame.has_value() ? WithBlame(std::move(after), *blame) : after;
}

absl::Status Aborted(absl::string_view group, int rank, int job_rank,
                     const absl::Status& why) {
  return WithBlame(
      absl::AbortedError(absl::StrCat("rank ", rank, " aborted the group '",
                                      group, "': ", InWords(why))),
      BlameFor(why, job_rank));
}

absl::Status AbortedJob(absl::string_view rank, int job_rank,
                        const absl::Status& why) {
  return WithBlame(absl::AbortedError(absl::StrCat(
                       rank, " has aborted the job: ", InWords(why))),
                   BlameFor(why, job_rank));
}

}  // namespace lockstep::internal_collective::verdicts
