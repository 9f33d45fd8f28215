// SayVerdict puts a verdict into words. Internal.
//
//   VerdictFacts facts;
//   SayVerdict(facts, time);
//   std::cout << time.verdict.sentence << '\n';
#ifndef LOCKSTEP_TOOLS_REPORT_VERDICT_TEXT_H_
#define LOCKSTEP_TOOLS_REPORT_VERDICT_TEXT_H_

#include "lockstep/tools/report/lost_time.h"

namespace lockstep::internal_report {

// What a verdict does not have, and its words need.
struct VerdictFacts {
  bool lacks_ranks = false;  // some ranks have no records
  // In the few steps that have lost most, all ranks were blocked.
  bool few_in_transfer = false;
};

// Fills in the sentence and the advice of the verdict.
void SayVerdict(const VerdictFacts& facts, LostTime& time);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_VERDICT_TEXT_H_
