#include "lockstep/collective/verdicts.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
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

// Returns "; A; B", with what is said of each rank.
std::string Behind(const std::vector<Missing>& missing) {
  std::string text;
  for (const Missing& each : missing) absl::StrAppend(&text, "; ", each.said);
  return text;
}

// Returns "; rank 2 last issued A", or "" if nothing is known of A.
std::string LastOf(const Party& rank) {
  if (rank.rank.last.empty()) return "";
  return absl::StrCat("; ", DescribeLastIssued(rank.name, rank.rank.last));
}

// Returns `why` with its code and this blame.
absl::Status Blamed(const absl::Status& why, Blame::Cause cause,
                    std::vector<Blame::Rank> ranks, const Subject& subject = {},
                    int64_t more = 0) {
  Blame blame;
  blame.cause = cause;
  blame.code = why.code();
  blame.ranks = std::move(ranks);
  blame.more = more;
  blame.operation = subject.operation;
  blame.number = subject.number;
  return WithBlame(why, blame);
}

// Returns the blame of ranks that differ, each with what it has issued.
absl::Status Differ(const std::string& text, const std::vector<Issued>& issued,
                    const Subject& subject = {}) {
  std::vector<Blame::Rank> ranks;
  for (const Issued& each : issued) {
    // A rank may differ from itself, in messages to itself.
    if (!ranks.empty() && ranks[0].rank == each.rank.rank.rank) continue;
    ranks.push_back(each.rank.rank);
    ranks.back().last = each.operation;
    ranks.back().age = absl::ZeroDuration();
  }
  return Blamed(absl::FailedPreconditionError(text), Blame::Cause::kDiffer,
                std::move(ranks), subject);
}

}  // namespace

std::string ListRanks(const std::vector<int>& ranks, size_t longest) {
  std::string text = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                                  absl::StrJoin(ranks, ", "));
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
      last_words.empty() ? "has not said yet what it has issued" : last_words,
      ", and has been silent for ", InMilliseconds(silent));
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
  std::string number;
  if (last > 0) {
    number = absl::StrCat(
        first < last ? absl::StrCat("#", first, " or one after it, up to ")
                     : "",
        "#", last);
  }
  std::string text = absl::StrCat("the ranks of group '", group, "' differ",
                                  last > 0 ? " at operation " : "", number);
  absl::StrAppend(&text, ": ");
  for (const Issued& each : issued) {
    absl::StrAppend(&text, &each == &issued.front() ? "" : ", and ",
                    each.rank.name, " issued ",
                    each.operation.empty() ? "something else" : each.operation);
  }
  std::vector<Issued> in_group = issued;
  for (Issued& each : in_group) {
    if (each.operation.empty()) continue;
    absl::StrAppend(&each.operation, last > 0 ? " " : "", number, " of group '",
                    group, "'");
  }
  return Differ(absl::StrCat(text, suspect), in_group,
                {in_group.front().operation, last});
}

absl::Status CountsDiffer(const Subject& subject,
                          const CountsThatDiffer& counts) {
  return Differ(
      absl::StrCat(subject.operation, ": ", counts.from.name, " sends ",
                   counts.gives, " elements to ", counts.to.name,
                   ", which takes ", counts.takes),
      {{counts.from, subject.operation}, {counts.to, subject.operation}},
      subject);
}

absl::Status PropertiesDiffer(absl::string_view what, absl::string_view group,
                              const Property& one, const Property& other) {
  return Differ(absl::StrCat("the ranks differ in the ", what, " of group '",
                             group, "': ", one.rank.name, " has ", one.value,
                             ", and ", other.rank.name, " has ", other.value),
                {{one.rank, ""}, {other.rank, ""}});
}

absl::Status DidNotCome(const Subject& subject, absl::string_view who,
                        absl::Duration deadline,
                        const std::vector<Missing>& missing, int64_t more) {
  std::vector<Blame::Rank> late, silent;
  for (const Missing& each : missing) {
    (each.answers ? late : silent).push_back(each.rank.rank);
  }
  const absl::Status why = absl::DeadlineExceededError(
      absl::StrCat(subject.operation, ": ", who, " did not come within ",
                   absl::FormatDuration(deadline), Behind(missing)));
  if (silent.empty()) {
    return Blamed(why, Blame::Cause::kLate, std::move(late), subject, more);
  }
  // The ranks that answer may themselves wait for one that does not.
  return Blamed(why, Blame::Cause::kSilent, std::move(silent), subject, more);
}

absl::Status WasNotDone(const Subject& subject, absl::Duration deadline,
                        const std::vector<Missing>& silent) {
  std::vector<Blame::Rank> ranks;
  for (const Missing& each : silent) ranks.push_back(each.rank.rank);
  return Blamed(
      absl::DeadlineExceededError(absl::StrCat(
          subject.operation, ": all ranks came, and it was not done within ",
          absl::FormatDuration(deadline),
          silent.empty() ? "; its data does not get through, or is slow"
                         : Behind(silent))),
      silent.empty() ? Blame::Cause::kData : Blame::Cause::kSilent,
      std::move(ranks), subject);
}

absl::Status MissingIsNotKnown(const Subject& subject, absl::Duration deadline,
                               const Missing& hub) {
  return Blamed(absl::DeadlineExceededError(absl::StrCat(
                    subject.operation, " did not end within ",
                    absl::FormatDuration(deadline),
                    ", and who is missing is not known: ", hub.said)),
                Blame::Cause::kSilent, {hub.rank.rank}, subject);
}

absl::Status HubIsSilent(absl::string_view group, const Party& hub,
                         absl::Duration deadline) {
  return Blamed(absl::DeadlineExceededError(absl::StrCat(
                    "group '", group, "': ", hub.name,
                    " did not answer within ", absl::FormatDuration(deadline))),
                Blame::Cause::kSilent, {hub.rank});
}

absl::Status TransportFailed(const Subject& subject, int rank,
                             const absl::Status& why) {
  absl::Status named =
      Annotate(why, absl::StrCat(subject.operation, " on rank ", rank));
  if (BlameOf(why).has_value()) return named;
  return Blamed(named, Blame::Cause::kData, {}, subject);
}

std::string IsSlow(absl::string_view operation, absl::string_view who,
                   const std::vector<Missing>& missing) {
  return absl::StrCat(operation, " is slow: ",
                      who.empty()
                          ? "all ranks have come, and its data is on the way"
                          : absl::StrCat(who, absl::StartsWith(who, "rank ")
                                                  ? " has not come yet"
                                                  : " have not come yet"),
                      Behind(missing));
}

absl::Status Deadlock(const std::vector<WaitsFor>& waits) {
  std::vector<Blame::Rank> ranks;
  for (const WaitsFor& wait : waits) {
    ranks.push_back(wait.rank.rank);
    ranks.back().last = wait.its_operation;
  }
  return Blamed(
      absl::FailedPreconditionError(absl::StrCat(
          "ranks use groups in different orders, and wait for each other: ",
          absl::StrJoin(waits, "; ",
                        [](std::string* out, const WaitsFor& wait) {
                          absl::StrAppend(out, wait.operation, " waits for ",
                                          wait.rank.name, ", which waits for ",
                                          wait.its_operation);
                        }))),
      Blame::Cause::kDiffer, std::move(ranks));
}

// ---- Ranks that are gone.

absl::Status HasLeftGroup(const Subject& subject, const Party& rank) {
  return Blamed(
      absl::UnavailableError(absl::StrCat(subject.operation, ": ", rank.name,
                                          " has left the group", LastOf(rank))),
      Blame::Cause::kLeft, {rank.rank}, subject);
}

absl::Status HasDropped(absl::string_view group, const Party& rank) {
  return Blamed(absl::UnavailableError(absl::StrCat(
                    rank.name, " has dropped its communicator of group '",
                    group, "'", LastOf(rank))),
                Blame::Cause::kLeft, {rank.rank});
}

absl::Status LeftBeforeMaking(absl::string_view group, const Party& rank) {
  return Blamed(absl::UnavailableError(absl::StrCat("making the group '", group,
                                                    "': ", rank.name,
                                                    " has left the group")),
                Blame::Cause::kLeft, {rank.rank});
}

absl::Status LeftBeforeJoining(absl::string_view parent, const Party& rank) {
  return Blamed(absl::UnavailableError(
                    absl::StrCat(rank.name, " of group '", parent,
                                 "' has left it before it joined this one")),
                Blame::Cause::kLeft, {rank.rank});
}

absl::Status CannotJoinAnyMore(absl::string_view parent, const Party& rank,
                               absl::string_view group) {
  return Blamed(
      absl::UnavailableError(absl::StrCat(
          rank.name, " of group '", parent,
          "' has left it, and so can't join the group '", group, "'")),
      Blame::Cause::kLeft, {rank.rank});
}

absl::Status HasClosedWorld(const Blame::Rank& rank) {
  return Blamed(absl::UnavailableError(absl::StrCat(
                    "rank ", rank.rank, " of the job has closed its world")),
                Blame::Cause::kLeft, {rank});
}

absl::Status IsGone(const Party& rank, const absl::Status& how,
                    const absl::Status& reason) {
  std::string more;
  if (!rank.rank.last.empty()) {
    more =
        absl::StrCat("; it ", DescribeLastWords(rank.rank.last, rank.rank.age));
  }
  if (!how.ok()) {
    Blame blame = BlameFor(how, rank.rank);
    // The star, which has noticed a loss, does not know the last words.
    if (blame.cause != Blame::Cause::kFailed) blame.ranks = {rank.rank};
    return WithBlame(Annotate(how, "", more), blame);
  }
  if (!reason.ok())
    absl::StrAppend(&more, "; it had been told: ", reason.message());
  const absl::Status gone = absl::UnavailableError(
      absl::StrCat(rank.name, " has left the job", more));
  if (reason.ok()) return Blamed(gone, Blame::Cause::kLeft, {rank.rank});
  return InPlaceOf(reason, gone);
}

absl::Status AfterFirstLoss(const absl::Status& why,
                            const absl::Status& first_loss) {
  if (!absl::IsUnavailable(why) || first_loss.ok() ||
      absl::StrContains(why.message(), first_loss.message())) {
    return why;
  }
  return InPlaceOf(
      first_loss,
      Annotate(why, "", absl::StrCat("; before that, ", first_loss.message())));
}

absl::Status Aborted(absl::string_view group, const Party& rank,
                     const absl::Status& why) {
  return WithBlame(
      absl::AbortedError(absl::StrCat(rank.name, " aborted the group '", group,
                                      "': ", InWords(why))),
      BlameFor(why, rank.rank));
}

absl::Status AbortedJob(const Party& rank, const absl::Status& why) {
  return WithBlame(absl::AbortedError(absl::StrCat(
                       rank.name, " has aborted the job: ", InWords(why))),
                   BlameFor(why, rank.rank));
}

absl::Status Broke(absl::string_view group, const Party& rank,
                   const absl::Status& why) {
  return WithBlame(
      Annotate(why, absl::StrCat(rank.name, " of group '", group, "'")),
      BlameFor(why, rank.rank));
}

absl::Status ForkedFrom(absl::string_view whom) {
  return absl::FailedPreconditionError(absl::StrCat(
      "this process was forked from ", whom,
      ", and has no part in what that does: collectives are for the process "
      "that joined, and a child can join a World of its own"));
}

}  // namespace lockstep::internal_collective::verdicts
