#include "fathom/server/receipt.h"

#include "fathom/base/check.h"
#include "fathom/base/json.h"

namespace fathom {
namespace {

Json list_of(const std::array<int64_t, kMaxDrafts>& counts, const std::array<int64_t, kMaxDrafts>& offered) {
  Json list = Json::array();
  for (size_t i = 0; i < counts.size() && offered[i] > 0; ++i) list.push(Json::of(counts[i]));
  return list;
}

Json milliseconds(double seconds) { return Json::of(double(int64_t(seconds * 1e6 + 0.5)) / 1000); }

}  // namespace

std::string receipt_json(const Usage& usage) {
  Json tree = Json::object();
  tree.set("prompt_tokens", Json::of(usage.prompt_tokens));
  tree.set("cached_tokens", Json::of(usage.cached_tokens));
  tree.set("replayed_tokens", Json::of(usage.replayed_tokens));
  tree.set("encoder_rows", Json::of(usage.encoder_rows));
  tree.set("decoder_rows", Json::of(usage.decoder_rows));
  tree.set("generated_tokens", Json::of(usage.generated_tokens));
  tree.set("rounds", Json::of(usage.rounds));
  tree.set("drafts_offered", list_of(usage.offered, usage.offered));
  tree.set("drafts_accepted", list_of(usage.accepted, usage.offered));
  tree.set("preemptions", Json::of(usage.preemptions));
  tree.set("queue_ms", milliseconds(usage.queue_seconds));
  tree.set("first_token_ms", milliseconds(usage.first_token_seconds));
  tree.set("total_ms", milliseconds(usage.total_seconds));
  return to_string(tree);
}

void add_receipt(std::string& json, const Usage& usage) {
  check(json.ends_with('}'), "a receipt goes into an object");
  json.pop_back();
  json.append(R"(,"fathom":)").append(receipt_json(usage)).append("}");
}

}  // namespace fathom
