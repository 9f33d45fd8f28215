// Rank 0's judge: it collects what the ranks of the job say, decides which
// groups fail and why, and tells all ranks the same.
//
// Everything below runs on the stars' threads, unless it says otherwise. An
// operation does not end, since rank 2 has not come to it:
//
//   rank 1  ControlPlane::OnTick -> Group::OnTick -> Watchdog::OnTick;
//           ControlPlane::ReportLate sends kLate to rank 0
//   rank 0  Hub::Handle(LateMessage) -> Inquiries::Report sends kAsk to the
//           other ranks
//   rank 2  ControlPlane::Handle(AskMessage) -> Group::Where; sends kAnswer
//   rank 0  Hub::Handle(AnswerMessage) -> Inquiries::Answer -> Judge, and again
//           at each OnTick -> Judge; at last Hub::Fail sends kFailed to all
//   rank 1  ControlPlane::Handle(FailedMessage) -> Group::OnFailure
//
// A rank can't go on, or aborts:
//
//   rank 2  ControlPlane::Fail, on any thread, sends kFail
//   rank 0  Hub::Handle(FailMessage) -> Hub::Fail
//
// A rank dies, or is not heard of any more; a rank aborts the job:
//
//   rank 0  Star -> ControlPlane::OnGone -> Hub::OnGone -> Hub::Fail
//   rank 0  Hub::Handle(FailMessage) without a group -> Hub::OnGone
//
// A transport fails, and another rank may know the cause:
//
//   rank 1  ControlPlane::FailByHearsay sends kHearsay
//   rank 0  Hub::Handle(HearsayMessage) -> AskForEchoes sends kEcho to all
//   all     send kEchoed
//   rank 0  Hub::Handle(EchoedMessage) or OnTick -> JudgeHearsay -> Hub::Fail
//
// Rank 0's own messages take the same way through its star. MarkTable compares
// what ranks have issued where a device does it without comparing. verdicts.h
// has the words. In this folder a "job rank" is a rank of the job, and a "rank"
// is one of a group.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_HUB_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_HUB_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/hub_group.h"
#include "lockstep/collective/control/inquiries.h"
#include "lockstep/collective/control/last_words.h"
#include "lockstep/collective/control/mark_table.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// Rank 0's judge.
//
// Requires: `star` is rank 0's, and outlives this, as do `last_words` and
// `timing`.
// Guarantees: a group fails once, with the same words on all ranks. One
// exception: a failure may let collectives up to some number end well first,
// and such a failure is replaced by one that lets fewer or none of them end. No
// call waits.
// Thread-safety: use it on the star's thread. The constructor may run on
// another thread before the star starts.
class Hub {
 public:
  Hub(Star& star, const LastWords& last_words, const FailureTiming& timing);

  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Takes a message to rank 0, which must not be empty. Ignores one that is cut
  // off, or whose type is not for rank 0.
  void OnMessage(int from, absl::string_view message);

  // Fails the groups of a job rank that has left, if `how` is OK, or that is
  // lost or has aborted the job.
  void OnGone(int job_rank, const absl::Status& how);

  // Judges again the cases that waited for time to pass. `ran` is
  // ControlPlane::ran().
  void OnTick(absl::Duration ran);

  // Returns whether the hub has still to decide on an operation.
  bool Judges(const TurnId& turn) const { return inquiries_.Has(turn); }

 private:
  template <typename M>
  void Deliver(int from, absl::string_view message);

  // These are about groups.
  void Handle(int from, const OpenMessage& open);
  void Handle(int from, const FailMessage& fail);
  void Handle(int from, const LeaveMessage& leave);
  void Handle(int from, const DetachMessage& detach);
  void Handle(int from, const ClosedMessage& closed);
  // These are about errors of transports.
  void Handle(int from, const HearsayMessage& hearsay);
  void Handle(int from, const EchoedMessage& echoed);
  // These are about operations.
  void Handle(int from, const LateMessage& late);
  void Handle(int from, const AnswerMessage& answer);
  void Handle(int from, const MarksMessage& marks);
  // These are about values.
  void Handle(int from, const SetMessage& set);
  void Handle(int from, const GetMessage& get);

  HubGroup* Find(const std::string& group);
  void RefuseToOpen(int from, const HubGroup& group, const GroupInfo& info,
                    const std::string& what);
  void FailForWhatCameBefore(const HubGroup& group, const GroupInfo& info);
  void FailIfItIsGone(const GroupInfo& info, int job_rank);
  void ConfirmOpen(int from, const HubGroup& group, const GroupInfo& info);
  void TellThatItLeft(const HubGroup& group, int rank,
                      const LaneCounts& counts);
  void Detach(int from, const std::string& group);

  // Fails a group, for collectives behind number `after`.
  void Fail(const std::string& group, const absl::Status& why,
            uint64_t after = 0);
  absl::Status Excused(const absl::Status& why) const;
  void TellFailure(const HubGroup& group);
  void FailWaitingChildren(const std::string& parent, const absl::Status& why);

  void AskForEchoes(HubGroup& group);
  void JudgeHearsay(const std::string& group);
  void FailForMarks(const HubGroup& group,
                    const MarkTable::Difference& difference);
  absl::Status DescribeGone(int job_rank, const absl::Status& how) const;

  Star& star_;
  const LastWords& last_words_;
  const FailureTiming& timing_;

  absl::Duration ran_;  // at the last tick
  HubGroups groups_;
  Inquiries inquiries_;

  std::map<int, absl::Status> gone_;  // by job rank, and how
  // The job rank that was lost first, or -1, and how.
  int first_lost_ = -1;
  absl::Status first_loss_;
  // By job rank: the last failure of a group that the rank was told when the
  // group failed, for the message that it has left. A failure because other
  // ranks have left does not count: these have told why.
  std::map<int, absl::Status> reasons_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_HUB_H_
