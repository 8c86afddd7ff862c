#include "fathom/engine/schedule_recorder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <unordered_map>

#include "fathom/base/sha256.h"

namespace fathom {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

std::span<const uint8_t> bytes_of(const auto& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

/// Tokens of one sequence as far as they are named.
struct Named {
  BlockName last = 0;             // of its newest full block
  int64_t tokens = 0;             // that it has
  std::vector<int32_t> open;      // behind the newest full block
  std::vector<ImageSpan> images;  // of its prompt
};

void append_number(std::string& out, const char* key, int64_t value) {
  out.append(",\"").append(key).append("\":").append(std::to_string(value));
}
void append_number(std::string& out, const char* key, double value) {
  out.append(",\"").append(key).append("\":");
  append_json_number(out, value);
}

}  // namespace

struct ScheduleRecorder::File {
  std::FILE* handle = nullptr;
  std::string path, buffer;
  std::string line;
  std::optional<Error> error;  // the first one; nothing is written after it
  std::array<uint64_t, 4> key{};
  std::unordered_map<SequenceId, Named> named;  // of sequences with a root
  std::unordered_map<uint32_t, uint32_t> tenants{{0, 0}};
  uint32_t next_tenant = 1;
  std::deque<std::vector<StepPlan::Rows>> planned;  // not committed yet

  ~File() {
    if (handle != nullptr) std::fclose(handle);
  }
  void flush() {
    if (!error && std::fwrite(buffer.data(), 1, buffer.size(), handle) != buffer.size()) {
      error = Error{ErrorCode::failed, std::string("could not be written: ") + std::strerror(errno), path,
                    "make room, and record again; what was recorded before can be replayed"};
    }
    buffer.clear();
  }
  uint32_t tenant_of(uint32_t tenant) {
    const auto [at, fresh] = tenants.try_emplace(tenant, next_tenant);
    next_tenant += fresh;
    return at->second;
  }
  BlockName name_of(BlockName before, std::span<const int32_t> tokens, std::span<const ImageSpan> images) {
    Sha256 hash;
    hash.add(bytes_of(key));
    hash.add(bytes_of(before));
    hash.add({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
    for (const ImageSpan& one : images) {
      hash.add(bytes_of(one.first));
      hash.add(bytes_of(one.count));
      hash.add(one.digest);
    }
    const auto digest = hash.digest();
    BlockName out = 0;
    std::memcpy(&out, digest.data(), sizeof out);
    return out;
  }
  BlockName root_name(std::span<const uint8_t> identity, KeyHash kind) {
    Sha256 hash;
    hash.add(bytes_of(key));
    const uint8_t shared = kind == sha256_key;
    hash.add(bytes_of(shared));
    hash.add(identity);
    const auto digest = hash.digest();
    BlockName out = 0;
    std::memcpy(&out, digest.data(), sizeof out);
    return out;
  }
  // Takes tokens over; the names of blocks that they fill go to `out`.
  void name(Named& named_, std::span<const int32_t> tokens, auto out) {
    while (!tokens.empty()) {
      const size_t room = size_t(kBlockTokens) - named_.open.size();
      const size_t count = std::min(room, tokens.size());
      named_.open.insert(named_.open.end(), tokens.begin(), tokens.begin() + ptrdiff_t(count));
      named_.tokens += int64_t(count);
      tokens = tokens.subspan(count);
      if (named_.open.size() < size_t(kBlockTokens)) return;
      named_.last =
          name_of(named_.last, named_.open, images_in(named_.images, named_.tokens - kBlockTokens, kBlockTokens));
      named_.open.clear();
      out(named_.last);
    }
  }
};

ScheduleRecorder::ScheduleRecorder(Scheduler& scheduler) : scheduler_(scheduler) {}
ScheduleRecorder::~ScheduleRecorder() { (void)stop().ok(); }

Result<void> ScheduleRecorder::start(const std::string& path, RankGroup group) {
  if (!scheduler_.idle() || scheduler_.counts().admitted > 0 || scheduler_.pools().prefixes.size() > 0) {
    return Error{ErrorCode::usage, "this scheduler has decided something already", path,
                 "record from its start: a record that begins later cannot be replayed"};
  }
  auto file = std::make_unique<File>();
  file->path = path;
  file->handle = std::fopen(path.c_str(), "wb");
  if (file->handle == nullptr) {
    return Error{errno == ENOENT ? ErrorCode::not_found : ErrorCode::failed,
                 std::string("could not be opened: ") + std::strerror(errno), path,
                 "name a file in a folder that exists"};
  }
  std::random_device entropy;
  for (uint64_t& word : file->key) word = uint64_t(entropy()) << 32 | entropy();
  file_ = std::move(file);
  file_->line = to_string(schedule_header(scheduler_.limits(), group));
  write_line();
  return {};
}

Result<void> ScheduleRecorder::stop() {
  if (!file_) return {};
  file_->flush();
  if (!file_->error && std::fflush(file_->handle) != 0) {
    file_->error =
        Error{ErrorCode::failed, std::string("could not be written: ") + std::strerror(errno), file_->path, ""};
  }
  const auto file = std::move(file_);
  if (file->error) return *file->error;
  return {};
}

void ScheduleRecorder::write_line() {
  if (!file_->error) file_->buffer.append(file_->line) += '\n';
  file_->line.clear();
  if (file_->buffer.size() >= kBufferBytes) file_->flush();
}

void ScheduleRecorder::note_submit(const Sequence& s) {
  File& file = *file_;
  std::string& out = file.line;
  out = "{\"submit\":{\"id\":" + std::to_string(s.id);
  append_number(out, "prompt", s.prompt_tokens);
  append_number(out, "max", s.max_tokens);
  if (s.drafts != 0) append_number(out, "drafts", int64_t(s.drafts));
  if (s.prompt_logits) out += ",\"logits\":true";
  if (s.priority != 0) append_number(out, "priority", int64_t(s.priority));
  if (const uint32_t tenant = file.tenant_of(s.tenant); tenant != 0) append_number(out, "tenant", int64_t(tenant));
  append_number(out, "arrived", s.arrived);
  if (s.first_token_by) append_number(out, "first_by", *s.first_token_by);
  if (s.between_tokens) append_number(out, "between", *s.between_tokens);
  if (s.parent != 0) append_number(out, "parent", int64_t(s.parent));
  if (!s.ready) out += ",\"ready\":false";
  out.append(",\"mode\":\"").append(name_of(s.mode)) += '"';
  if (s.chain.root != 0) {
    const PrefixIndex& prefixes = scheduler_.pools().prefixes;
    const BlockName root = file.root_name(prefixes.identity_of(s.chain.root), prefixes.hash_of(s.chain.root));
    out.append(",\"root\":{\"name\":\"").append(text_of(root)) += '"';
    const uint32_t account = file.tenant_of(uint32_t(prefixes.account_of(s.chain.root)));
    if (account != 0) append_number(out, "account", int64_t(account));
    out += "},\"blocks\":[";
    Named named;
    named.images = s.chain.images;
    bool first = true;
    file.name(named, s.ids, [&](BlockName name) {
      out.append(first ? "\"" : ",\"").append(text_of(name)) += '"';
      first = false;
    });
    out += ']';
    file.named[s.id] = std::move(named);
  }
  out += "}}";
  write_line();
}

void ScheduleRecorder::submit(Sequence sequence) {
  if (file_) note_submit(sequence);
  scheduler_.submit(std::move(sequence));
}

bool ScheduleRecorder::cancel(SequenceId id) {
  if (file_) {
    file_->line = "{\"cancel\":" + std::to_string(id) + "}";
    file_->named.erase(id);
    write_line();
  }
  return scheduler_.cancel(id);
}

void ScheduleRecorder::make_ready(SequenceId id) {
  if (file_) file_->line = "{\"ready\":" + std::to_string(id) + "}", write_line();
  scheduler_.make_ready(id);
}

bool ScheduleRecorder::preempt(SequenceId id) {
  if (file_) file_->line = "{\"preempt\":" + std::to_string(id) + "}", write_line();
  return scheduler_.preempt(id);
}

void ScheduleRecorder::set_cost(PieceCost cost) {
  if (file_) {
    file_->line = "{\"cost\":{\"decode_seconds\":";
    append_json_number(file_->line, cost.decode_seconds);
    append_number(file_->line, "prompt_row_seconds", cost.prompt_row_seconds);
    file_->line += "}}";
    write_line();
  }
  scheduler_.set_cost(cost);
}

void ScheduleRecorder::note_plan(double now, std::optional<StepRows> rows, const StepPlan& plan) {
  std::string& out = file_->line;
  out = "{\"plan\":{\"now\":";
  append_json_number(out, now);
  if (rows) out.append(",\"take\":\"").append(name_of(*rows)) += '"';
  append_plan_fields(out, plan);
  out += "}}";
  write_line();
  if (!plan.empty()) file_->planned.push_back(plan.rows);
}

const StepPlan& ScheduleRecorder::plan(double now) {
  const StepPlan& plan = scheduler_.plan(now);
  if (file_) note_plan(now, {}, plan);
  return plan;
}

const StepPlan& ScheduleRecorder::plan(double now, StepRows rows) {
  const StepPlan& plan = scheduler_.plan(now, rows);
  if (file_) note_plan(now, rows, plan);
  return plan;
}

void ScheduleRecorder::note_group_step(StepKind kind) {
  if (file_) file_->line = std::string("{\"group\":\"") + name_of(kind) + "\"}", write_line();
  scheduler_.note_group_step(kind);
}

// Kept tokens are named as they fill blocks; those that are dropped are counted.
void ScheduleRecorder::note_commit(const StepPlan& plan, const StepResult& result, std::span<const Outcome> outcomes) {
  File& file = *file_;
  std::string& out = file.line;
  check(!file.planned.empty() && file.planned.front() == plan.rows, "plans are committed as they were made, in order");
  file.planned.pop_front();
  out = "{\"commit\":{\"tokens\":[";
  for (size_t entry = 0; entry < outcomes.size(); ++entry) {
    if (entry > 0) out += ',';
    out += std::to_string(result.of(entry).size());
  }
  out += ']';
  if (!result.proposed.empty()) {
    out += ",\"proposed\":[";
    for (size_t entry = 0; entry < outcomes.size(); ++entry) {
      if (entry > 0) out += ',';
      out += std::to_string(result.proposed[entry]);
    }
    out += ']';
  }
  std::string stops, blocks;
  for (size_t entry = 0; entry < outcomes.size(); ++entry) {
    const Outcome& outcome = outcomes[entry];
    if (outcome.finish == FinishReason::stop) {
      stops += (stops.empty() ? "[" : ",[") + std::to_string(entry) + "," + std::to_string(outcome.kept) + "]";
    }
    const auto named = file.named.find(outcome.sequence);
    if (named == file.named.end()) continue;
    file.name(named->second, result.of(entry).first(size_t(outcome.kept)), [&](BlockName name) {
      blocks += (blocks.empty() ? "[" : ",[") + std::to_string(entry) + ",\"" + text_of(name) + "\"]";
    });
    if (outcome.finish) file.named.erase(named);
  }
  if (!stops.empty()) out.append(",\"stops\":[").append(stops) += ']';
  if (!blocks.empty()) out.append(",\"blocks\":[").append(blocks) += ']';
  out += "}}";
  write_line();
}

std::span<const Outcome> ScheduleRecorder::commit(const StepPlan& plan, const StepResult& result) {
  const auto outcomes = scheduler_.commit(plan, result);
  if (file_) note_commit(plan, result, outcomes);
  return outcomes;
}

bool ScheduleRecorder::put_snapshot(SequenceId id, int64_t position,
                                    const std::function<void(std::span<uint8_t>)>& fill) {
  if (file_) {
    file_->line = "{\"snapshot\":[" + std::to_string(id) + "," + std::to_string(position) + "]}";
    write_line();
  }
  return scheduler_.put_snapshot(id, position, fill);
}

int32_t ScheduleRecorder::add_account(AccountLimits limits) {
  const int32_t account = scheduler_.pools().blocks.idle().add_account(limits);
  if (file_) {
    file_->line = "{\"account\":{\"number\":" + std::to_string(file_->tenant_of(uint32_t(account)));
    append_number(file_->line, "floor_blocks", int64_t(limits.floor_blocks));
    append_number(file_->line, "seconds", int64_t(limits.time_to_live.count()));
    file_->line += "}}";
    write_line();
  }
  return account;
}

void ScheduleRecorder::forget_tenant(uint32_t tenant) {
  scheduler_.forget_tenant(tenant);
  if (file_ && tenant != 0) file_->tenants.erase(tenant);
}

}  // namespace fathom
