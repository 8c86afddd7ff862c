#include "fathom/engine/schedule_replay.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "fathom/base/mapped_file.h"
#include "fathom/checkpoint/tensor_spec.h"
#include "fathom/engine/record_fields.h"

namespace fathom {
namespace {

constexpr int64_t kMostId = int64_t(1) << 53;
constexpr double kMostSeconds = 1e12;

std::string plan_text(const StepPlan& plan) {
  std::string out;
  append_plan_fields(out, plan);
  return out.empty() ? "nothing" : out.substr(1);
}

std::optional<BlockName> block_name(const Json& value) {
  if (!value.is_string() || value.text.size() != 16) return {};
  BlockName out = 0;
  for (const char c : value.text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return {};
    out = out << 4 | BlockName(digit);
  }
  return out;
}

class Replayer {
 public:
  Replayer(const SchedulerLimits& limits, ScheduleCaps caps) : caps_(caps), scheduler_(limits) {}

  /// One line behind the header. Errors: bad_input.
  Result<void> run(const Json& line, const std::string& where);
  ReplayReport report;

 private:
  /// A plan that is not committed, and which life of each sequence it is of.
  struct Planned {
    StepPlan plan;
    std::vector<int64_t> admissions;
  };
  /// Of a sequence that has not ended.
  struct Open {
    int64_t tokens = 0;  // that it may come to
    std::vector<BlockName> blocks;
    bool exact = false, cached = false;
    ReplayMode mode = ReplayMode::compact;
  };

  void submit(RecordFields& f);
  void plan(RecordFields& f);
  void commit(RecordFields& f);
  void account(RecordFields& f);
  void snapshot(RecordFields& f, const Json& call);
  bool fits(const StepPlan::Rows& rows, int64_t admission, int64_t tokens);
  void differ(std::string what, std::string recorded, std::string replayed);
  /// A line names at most two.
  int64_t most_accounts() const { return 2 * report.lines; }
  SequenceId id_of(const Json& value, RecordFields& f) { return SequenceId(f.whole_of(&value, "", 1, kMostId)); }

  ScheduleCaps caps_;
  Scheduler scheduler_;
  std::unordered_map<SequenceId, Open> open_;
  std::unordered_set<SequenceId> seen_;
  std::deque<Planned> planned_;
  int64_t open_tokens_ = 0;
  double now_ = -kMostSeconds;

  void close(SequenceId id) {
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    open_tokens_ -= at->second.tokens;
    open_.erase(at);
  }
};

void Replayer::differ(std::string what, std::string recorded, std::string replayed) {
  report.difference =
      ScheduleDifference{report.lines, report.steps, std::move(what), std::move(recorded), std::move(replayed)};
}

void Replayer::submit(RecordFields& f) {
  Sequence s;
  const SchedulerLimits& limits = scheduler_.limits();
  s.id = SequenceId(f.whole("id", 1, kMostId));
  s.prompt_tokens = f.whole("prompt", 1, limits.context);
  s.max_tokens = f.whole("max", 1, limits.context);
  s.drafts = int(f.whole("drafts", 0, kMaxDrafts, 0));
  s.prompt_logits = f.boolean("logits", false);
  s.priority = int(f.whole("priority", INT32_MIN, INT32_MAX, 0));
  s.tenant = uint32_t(f.whole("tenant", 0, INT32_MAX, 0));
  s.arrived = f.number("arrived", -kMostSeconds, kMostSeconds);
  s.first_token_by = f.optional_number("first_by", -kMostSeconds, kMostSeconds);
  s.between_tokens = f.optional_number("between", 0, 1e6);
  s.parent = SequenceId(f.whole("parent", 0, kMostId, 0));
  s.ready = f.boolean("ready", true);
  const auto mode = replay_mode_of(f.text("mode"));
  if (!mode) f.fail("mode", "is no mode of replay");
  if (f.ok() && s.most_tokens() > limits.context) f.fail("max", "does not fit into the context");
  if (f.ok() && Scheduler::blocks_needed(s) > limits.blocks) f.fail("max", "does not fit into the cache");
  if (f.ok() && !seen_.insert(s.id).second) f.fail("id", "was there before");
  if (f.ok() && open_tokens_ + s.most_tokens() > caps_.open_tokens)
    f.fail("max", "asks for more tokens than are allowed");
  if (!f.ok()) return;
  s.mode = *mode;

  Open open;
  open.tokens = s.most_tokens();
  open.mode = s.mode;
  s.ids.assign(size_t(s.prompt_tokens), kOpenToken);
  PrefixRoot root;
  int64_t account = 0;
  if (f.has("root")) {
    RecordFields r = f.inner("root");
    open.cached = true;
    open.exact = replay_class_of(s.mode) == ReplayClass::exact;
    root.salt = std::string(r.text("name"));
    root.replay = replay_class_of(s.mode);
    account = r.whole("account", 0, most_accounts(), 0);
    if (!r.ok()) return f.fail("root", "has no name or account");
    for (const Json& one : f.list("blocks")) {
      const auto name = block_name(one);
      if (!name) return f.fail("blocks", "is no list of names");
      open.blocks.push_back(*name);
    }
    if (int64_t(open.blocks.size()) != s.prompt_tokens / kBlockTokens)
      return f.fail("blocks", "does not name all full blocks");
  }
  if (s.parent != 0) {
    if (!seen_.contains(s.parent) || s.parent == s.id) return f.fail("parent", "was never there");
    const auto parent = open_.find(s.parent);
    const Sequence* other = scheduler_.find(s.parent);
    if (parent != open_.end() && other != nullptr) {
      const bool same_blocks = !open.cached || !parent->second.cached ||
                               (open.blocks.size() <= parent->second.blocks.size() &&
                                std::equal(open.blocks.begin(), open.blocks.end(), parent->second.blocks.begin()));
      if (other->prompt_tokens != s.prompt_tokens || parent->second.mode != s.mode || !same_blocks) {
        return f.fail("parent", "has another prompt or mode");
      }
    }
  }
  if (!f.ok()) return;
  for (size_t b = 0; b < open.blocks.size(); ++b) {
    const auto tokens = tokens_of(open.blocks[b]);
    std::copy(tokens.begin(), tokens.end(), s.ids.begin() + ptrdiff_t(b) * kBlockTokens);
  }
  if (open.cached) {
    IdleBlocks& accounts = scheduler_.pools().blocks.idle();
    while (accounts.accounts() <= account) accounts.add_account({});
    s.chain.root = scheduler_.pools().prefixes.open_root(root, xxh3_key, int32_t(account));
  }
  open_tokens_ += open.tokens;
  open_.emplace(s.id, std::move(open));
  ++report.requests;
  scheduler_.submit(std::move(s));
}

void Replayer::plan(RecordFields& f) {
  const double now = f.number("now", -kMostSeconds, kMostSeconds);
  if (f.ok() && now < now_) f.fail("now", "goes back");
  const auto take = f.has("take") ? step_rows_of(f.text("take")) : std::nullopt;
  if (f.has("take") && !take) f.fail("take", "is no choice of rows");
  const auto lists_of = [&](const char* key, size_t numbers, auto take) {
    for (const Json& one : f.list(key)) {
      if (!one.is_array() || one.items.size() != numbers) return f.fail(key, "has an entry of another length");
      std::array<int64_t, 6> values{};
      for (size_t i = 0; i < numbers; ++i) values[i] = f.whole_of(&one.items[i], key, 0, kMostId);
      take(values);
    }
  };
  StepPlan recorded;
  lists_of("rows", 6, [&](const auto& v) {
    recorded.rows.push_back({SequenceId(v[0]), v[1], int(v[2]), int(v[3]), int(v[4]), int(v[5])});
  });
  lists_of("copies", 2, [&](const auto& v) { recorded.copies.push_back({int32_t(v[0]), int32_t(v[1])}); });
  lists_of("slot_copies", 2, [&](const auto& v) { recorded.slot_copies.push_back({int32_t(v[0]), int32_t(v[1])}); });
  lists_of("restores", 3, [&](const auto& v) {
    recorded.restores.push_back({SequenceId(v[0]), int32_t(v[1]), v[2], {}});
  });
  for (const Json& one : f.list("preempted"))
    recorded.preempted.push_back(SequenceId(f.whole_of(&one, "preempted", 0, kMostId)));
  if (!f.ok()) return;
  now_ = now;
  StepPlan made = take ? scheduler_.plan(now, *take) : scheduler_.plan(now);
  for (StepPlan::Restore& one : made.restores) one.bytes.clear();
  ++report.plans;
  report.steps += !made.empty() || !recorded.empty();
  report.preempted += int64_t(made.preempted.size());
  if (made == recorded) {
    if (made.empty()) return;
    Planned planned;
    for (const StepPlan::Rows& rows : made.rows)
      planned.admissions.push_back(scheduler_.find(rows.sequence)->admission);
    planned.plan = std::move(made);
    planned_.push_back(std::move(planned));
    return;
  }
  const char* what = made.rows != recorded.rows                 ? "rows"
                     : made.copies != recorded.copies           ? "copies"
                     : made.slot_copies != recorded.slot_copies ? "slot copies"
                     : made.restores != recorded.restores       ? "restores"
                                                                : "preempted";
  differ(what, plan_text(recorded), plan_text(made));
}

// What Scheduler::commit takes for granted of a result.
bool Replayer::fits(const StepPlan::Rows& rows, int64_t admission, int64_t tokens) {
  const Sequence* s = scheduler_.find(rows.sequence);
  if (s == nullptr || s->admission != admission || s->in_flight_steps == 0) return true;  // it left; nothing is taken
  const bool brings = rows.first + rows.count >= s->prefill_tokens;
  if (tokens == 0 && brings) return true;
  if (s->in_prompt()) return tokens == (s->cached + rows.count < s->prefill_tokens ? 0 : 1);
  return tokens >= 1 && tokens <= 1 + rows.drafts;
}

void Replayer::commit(RecordFields& f) {
  if (planned_.empty()) return f.fail("", "commits a step that was not planned");
  Planned planned = std::move(planned_.front());
  planned_.pop_front();
  const size_t entries = planned.plan.rows.size();
  const auto& counts = f.list("tokens");
  const auto& proposed = f.list("proposed");
  if (counts.size() != entries) return f.fail("tokens", "is not of the planned step");
  if (!proposed.empty() && proposed.size() != entries) return f.fail("proposed", "is not of the planned step");
  StepResult result;
  result.begin.push_back(0);
  for (size_t i = 0; i < entries; ++i) {
    const int64_t count = f.whole_of(&counts[i], "tokens", 0, 1 + kMaxDrafts);
    if (f.ok() && !fits(planned.plan.rows[i], planned.admissions[i], count))
      f.fail("tokens", "is no result of its step");
    result.tokens.insert(result.tokens.end(), size_t(count), kOpenToken);
    result.begin.push_back(int32_t(result.tokens.size()));
    if (!proposed.empty()) result.proposed.push_back(int(f.whole_of(&proposed[i], "proposed", 0, kMaxDrafts)));
  }
  if (!f.ok()) return;

  // Ends, then the names of blocks that were filled: their tokens take the places of those that stood for them.
  std::vector<int64_t> stops(entries, 0);  // tokens kept up to the end
  for (const Json& one : f.list("stops")) {
    if (!one.is_array() || one.items.size() != 2) return f.fail("stops", "is no list of pairs");
    const auto entry = size_t(f.whole_of(&one.items[0], "stops", 0, int64_t(entries) - 1));
    const int64_t most = int64_t(result.of(entry).size());
    if (most == 0) return f.fail("stops", "ends what has no tokens");
    stops[entry] = f.whole_of(&one.items[1], "stops", 1, most);
    result.tokens[size_t(result.begin[entry] + stops[entry] - 1)] = kEndToken;
  }
  for (const Json& one : f.list("blocks")) {
    if (!one.is_array() || one.items.size() != 2) return f.fail("blocks", "is no list of pairs");
    const auto entry = size_t(f.whole_of(&one.items[0], "blocks", 0, int64_t(entries) - 1));
    const auto name = block_name(one.items[1]);
    Sequence* s = f.ok() && name ? scheduler_.find(planned.plan.rows[entry].sequence) : nullptr;
    const auto open = s ? open_.find(s->id) : open_.end();
    if (open == open_.end()) return f.fail("blocks", "names a block of nobody");
    const int64_t first = int64_t(open->second.blocks.size()) * kBlockTokens;
    const int64_t length = int64_t(s->ids.size());
    if (length >= first + kBlockTokens || length + int64_t(result.of(entry).size()) < first + kBlockTokens) {
      return f.fail("blocks", "names a block that is not filled");
    }
    const auto tokens = tokens_of(*name);
    for (int64_t p = first; p < first + kBlockTokens; ++p) {
      int32_t& token = p < length ? s->ids[size_t(p)] : result.tokens[size_t(result.begin[entry] + p - length)];
      token = tokens[size_t(p - first)];
    }
    open->second.blocks.push_back(*name);
  }
  if (!f.ok()) return;
  for (size_t i = 0; i < entries; ++i) {
    Sequence* s = scheduler_.find(planned.plan.rows[i].sequence);
    if (s == nullptr) continue;
    s->stop_ids.clear();
    if (stops[i] > 0) s->stop_ids.push_back(result.of(i)[size_t(stops[i] - 1)]);
  }
  ++report.commits;
  const auto outcomes = scheduler_.commit(planned.plan, result);
  for (size_t i = 0; i < entries; ++i) {
    const Outcome& outcome = outcomes[i];
    const bool stopped = outcome.finish == FinishReason::stop;
    if (stopped != (stops[i] > 0) || (stopped && outcome.kept != stops[i])) {
      const auto text = [](bool ends, int64_t kept) {
        return ends ? "ends behind " + std::to_string(kept) + " tokens" : std::string("goes on");
      };
      return differ("outcome of entry " + std::to_string(i), text(stops[i] > 0, stops[i]), text(stopped, outcome.kept));
    }
    if (outcome.finish) close(outcome.sequence);
  }
}

void Replayer::account(RecordFields& f) {
  IdleBlocks& accounts = scheduler_.pools().blocks.idle();
  AccountLimits limits;
  const int64_t number = f.whole("number", accounts.accounts(), most_accounts());
  limits.floor_blocks = int32_t(f.whole("floor_blocks", 0, INT32_MAX));
  limits.time_to_live = std::chrono::seconds(f.whole("seconds", 0, int64_t(1) << 40));
  if (!f.ok()) return;
  while (accounts.accounts() < number) accounts.add_account({});  // of tenants that came without a prefix
  accounts.add_account(limits);
}

void Replayer::snapshot(RecordFields& f, const Json& call) {
  const bool pair = call.is_array() && call.items.size() == 2;
  if (!pair) return f.fail("snapshot", "is no pair");
  const SequenceId id = SequenceId(f.whole_of(&call.items[0], "snapshot", 1, kMostId));
  const int64_t position = f.whole_of(&call.items[1], "snapshot", kBlockTokens, caps_.context);
  const SchedulerLimits& limits = scheduler_.limits();
  if (f.ok() && position % kBlockTokens != 0) f.fail("snapshot", "is not at the end of a block");
  if (f.ok() && limits.snapshot_bytes == 0) f.fail("snapshot", "is taken where there are none");
  if (f.ok()) scheduler_.put_snapshot(id, position, [](std::span<uint8_t>) {});
}

Result<void> Replayer::run(const Json& line, const std::string& where) {
  ++report.lines;
  RecordFields f(line, where);
  if (!f.ok() || line.fields.size() != 1) {
    f.fail("", "is not one call");
    return f.error();
  }
  const auto& [name, call] = line.fields[0];
  if (name == "submit" || name == "plan" || name == "commit" || name == "account" || name == "cost") {
    RecordFields inner(call, where, name);
    if (!inner.ok()) return inner.error();
    if (name == "submit") {
      submit(inner);
    } else if (name == "plan") {
      plan(inner);
    } else if (name == "commit") {
      commit(inner);
    } else if (name == "account") {
      account(inner);
    } else {
      PieceCost cost;
      cost.decode_seconds = inner.number("decode_seconds", 0, 1e6);
      cost.prompt_row_seconds = inner.number("prompt_row_seconds", 0, 1e6);
      // As a divisor: what is smaller than a picosecond is no measurement.
      if (inner.ok() && cost.prompt_row_seconds > 0 && cost.prompt_row_seconds < 1e-12) cost.prompt_row_seconds = 1e-12;
      scheduler_.set_cost(cost);
    }
    if (!inner.ok()) return inner.error();
    return {};
  }
  if (name == "snapshot") {
    snapshot(f, call);
  } else if (name == "group") {
    const auto kind = call.is_string() ? step_kind_of(call.text) : std::nullopt;
    if (!kind) f.fail("group", "is no kind of step");
    if (kind) scheduler_.note_group_step(*kind), report.group_steps.push_back(*kind);
  } else if (name == "cancel") {
    const SequenceId id = id_of(call, f);
    if (f.ok() && scheduler_.cancel(id)) close(id);
  } else if (name == "ready") {
    if (const SequenceId id = id_of(call, f); f.ok()) scheduler_.make_ready(id);
  } else if (name == "preempt") {
    if (const SequenceId id = id_of(call, f); f.ok()) scheduler_.preempt(id);
  } else {
    f.fail(name.substr(0, 40), "is no call");
  }
  if (!f.ok()) return f.error();
  return {};
}

}  // namespace

Result<ReplayReport> replay_schedule_text(std::string_view text, const std::string& where, const ScheduleCaps& caps) {
  std::unique_ptr<Replayer> replayer;
  int64_t number = 0;
  bool cut = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::string at = where + ":" + std::to_string(++number);
    const auto json = parse_json(line, at, {.bytes = int64_t(1) << 30, .depth = 8, .finite = true});
    if (!json && end == std::string_view::npos && replayer) {
      cut = true;
      break;
    }
    if (!json) return json.error();
    if (!replayer) {
      auto header = read_schedule_header(*json, caps, at);
      if (!header) return header.error();
      replayer = std::make_unique<Replayer>(header->limits, caps);
      replayer->report.lines = 1;
      replayer->report.group = header->group;
      continue;
    }
    if (auto done = replayer->run(*json, at); !done) return done.error();
    if (replayer->report.difference) break;
  }
  if (!replayer) {
    return Error{ErrorCode::bad_input, "this is no record of a scheduler", where, "it is empty"};
  }
  replayer->report.cut = cut;
  return std::move(replayer->report);
}

Result<ReplayReport> replay_schedule(const std::string& path, const ScheduleCaps& caps) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto bytes = file->bytes();
  return replay_schedule_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, caps);
}

std::optional<std::string> first_disagreement(std::span<const ReplayReport> ranks) {
  for (size_t step = 0;; ++step) {
    for (const ReplayReport& rank : ranks) {
      if (step >= rank.group_steps.size()) return {};
      const StepKind one = ranks[0].group_steps[step], other = rank.group_steps[step];
      if (one == other) continue;
      return "step " + with_commas(int64_t(step) + 1) + " is " + name_of(one) + " for rank " +
             std::to_string(ranks[0].group.rank) + " and " + name_of(other) + " for rank " +
             std::to_string(rank.group.rank);
    }
    if (ranks.empty()) return {};
  }
}

std::string to_string(const ReplayReport& report) {
  std::string out;
  if (report.group.ranks > 1) {
    out = "rank " + std::to_string(report.group.rank) + " of " + std::to_string(report.group.ranks) + ": ";
  }
  out += with_commas(report.steps) + " steps of " + with_commas(report.requests) + " requests";
  if (report.preempted > 0) out += ", " + with_commas(report.preempted) + " preemptions";
  if (report.cut) out += ", the last line is cut";
  if (!report.difference) return out + ": every decision is the same";
  const ScheduleDifference& d = *report.difference;
  return out + ": step " + with_commas(d.step) + " (line " + with_commas(d.line) + ") differs in " + d.what +
         "\n  recorded: " + d.recorded + "\n  replayed: " + d.replayed;
}

}  // namespace fathom
