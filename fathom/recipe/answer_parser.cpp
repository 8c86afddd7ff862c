// The parser looks at each byte once. Bytes that are not decided yet (the beginning of a marker, newlines before one)
// stay in `window_`; what is decided is appended to the open run, and a run is given out when its chunk is decided to
// the last byte or something else follows. That is the wheel's granularity (spec 8.2), and it needs the ends of the
// chunks in the window: `pieces_`.
#include "fathom/recipe/answer_parser.h"

#include <algorithm>
#include <utility>

#include "fathom/base/json.h"
#include "fathom/recipe/answer_stages.h"
#include "fathom/recipe/json_text.h"

namespace fathom::recipe {
namespace {

/// What becomes of bytes that belong to no pattern.
enum class Action : uint8_t { undecided, drop, content, blank, reasoning, name, verbatim, escaped, hold };

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// One JSON value, blanks around it allowed (simdjson refuses some behind a bare word).
bool is_json(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return false;
  return parse_json(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1), "").ok();
}

/// The tag of a call or of a parameter, as far as it was read (D-11).
struct Tag {
  enum class Step : uint8_t { start, between, name, after_name, before_value, quoted, quote, bare };
  enum class Target : uint8_t { nothing, name, flag };

  bool of_call = false;
  bool named = false;    // the value of `name` has begun
  bool flagged = false;  // `string` was there
  Step step = Step::start;
  Target target = Target::nothing;
  std::string attribute;  // its name, cut off behind what we know
  std::string flag;       // value of `string`, likewise
};
constexpr size_t kLongestKnownWord = 8;  // longer than "string" and "false": equal to neither

}  // namespace

struct AnswerParser::State {
  explicit State(const Parsing& parsing)
      : lenient_(parsing.policy == Policy::lenient),
        json_(parsing.json_output),
        patterns_(patterns_of(parsing)),
        call_opening_("<" + parsing.spellings[SpecialToken::dsml]) {
    required_ = parsing.required_parameters;
    if (parsing.starts_in_tool_calls) {
      enter(Stage::calls);
    } else if (!parsing.stage) {
      enter(Stage::text, true);
    } else if (*parsing.stage == ThinkingStage::content_continuation) {
      enter(Stage::text);
    } else {
      enter(Stage::reason, *parsing.stage == ThinkingStage::reasoning_start);
    }
  }

  // -- stages ---------------------------------------------------------------------------------------------------------

  PatternSet& patterns(Stage stage) { return patterns_[size_t(stage)]; }

  Action default_action() const {
    switch (stage_) {
      case Stage::text:
        if (!json_) return Action::content;
        [[fallthrough]];
      case Stage::json_done: return lenient_ ? Action::drop : Action::blank;  // D-14
      case Stage::json: return Action::content;
      case Stage::reason: return Action::reasoning;
      case Stage::name: return Action::name;
      case Stage::key: return Action::verbatim;
      case Stage::string_value: return Action::escaped;
      case Stage::raw_value: return lenient_ ? Action::hold : Action::verbatim;  // D-10
      default: return Action::drop;
    }
  }

  void enter(Stage stage, bool drops_first_newlines = false) {
    patterns(stage_).restart();
    stage_ = stage;
    lead_ = drops_first_newlines;
  }

  // -- runs -----------------------------------------------------------------------------------------------------------

  /// Runs of the last call are read: keep only the text of the run that waits for the end of its chunk.
  void begin_call() {
    if (runs_.empty() && text_.empty()) return;
    runs_.clear();
    if (!open_) return text_.clear();
    text_.erase(0, run_.begin);
    run_.begin = 0;
  }

  void close_run() {
    if (!open_) return;
    open_ = false;
    run_.end = text_.size();
    runs_.push_back(run_);
    if (std::exchange(run_ends_call_, false)) {
      runs_.push_back({Delta::Kind::call_end, run_.call, run_.end, run_.end, run_.input_end, run_.input_end});
    }
  }

  /// The run that takes the byte at `decided_`.
  void open_run(Delta::Kind kind) {
    if (open_ && run_.kind == kind && !run_is_whole_) return;
    close_run();
    open_ = true;
    run_is_whole_ = false;
    run_ = {kind, announced_ - 1, text_.size(), text_.size(), decided_, decided_};
  }

  /// A run of its own. It waits like any other when the rest of its chunk is held.
  void emit(Delta::Kind kind, std::string_view text) {
    close_run();
    open_run(kind);
    text_ += text;
    run_is_whole_ = true;
  }

  static bool gives_runs(Action action) {
    return action >= Action::content && action != Action::name && action != Action::hold;
  }
  static Delta::Kind kind_of(Action action) {
    if (action == Action::reasoning) return Delta::Kind::reasoning;
    return action == Action::content || action == Action::blank ? Delta::Kind::content : Delta::Kind::arguments;
  }

  /// Leaves the chunks that are decided to their last byte; `action` is what happened to that byte.
  void leave_pieces(Action action) {
    while (piece_ < pieces_.size() && pieces_[piece_].end <= decided_) {
      close_run();
      if (pieces_[piece_].empty && gives_runs(action))
        emit(kind_of(action), action == Action::blank ? " " : ""), close_run();
      ++piece_;
    }
  }

  /// Decides the bytes before `end`, counted from the beginning of the answer.
  void take(int64_t end, Action action) {
    if (end <= decided_) return;
    leave_pieces(action);  // empty chunks before the first byte of all
    last_ = action;
    while (decided_ < end) {
      const int64_t stop = std::min(end, pieces_[piece_].end);
      const auto bytes = std::string_view(window_).substr(size_t(decided_ - base_), size_t(stop - decided_));
      if (gives_runs(action)) {
        open_run(kind_of(action));
        run_.input_end = stop;
      }
      switch (action) {
        case Action::undecided: break;
        case Action::drop: close_run(); break;
        case Action::blank:
          if (text_.size() == run_.begin) text_ += ' ';
          break;
        case Action::escaped: append_escaped(text_, bytes); break;
        case Action::name: name_ += bytes; break;
        case Action::hold: raw_ += bytes; break;
        case Action::content:
        case Action::reasoning:
        case Action::verbatim: text_ += bytes; break;
      }
      decided_ = stop;
      leave_pieces(action);
    }
  }

  // -- input ----------------------------------------------------------------------------------------------------------

  int64_t total() const { return base_ + int64_t(window_.size()); }

  void push(std::string_view bytes, Spelling spelling) {
    begin_call();
    if (bytes.empty()) {
      if (lenient_ || stopped_) return;  // D-14
      pieces_.push_back({total(), true});
      if (last_ != Action::undecided && decided_ == total()) leave_pieces(last_);
      return;
    }
    if (stage_ == Stage::end) {
      if (!stopped_) base_ = decided_ = at_ = total() + int64_t(bytes.size());
      return;
    }
    spelling_ = spelling;
    window_ += bytes;
    pieces_.push_back({total(), false});
    scan();
    if (stage_ == Stage::end && !stopped_) {
      at_ = total();
      take(total(), Action::drop);
    } else if (!stopped_ && stage_ != Stage::tag) {
      take(total() - int64_t(patterns(stage_).held()), default_action());
    }
    if (decided_ == total()) close_run();
    forget_decided();
  }

  void forget_decided() {
    if (decided_ == total() || stopped_) {
      window_.clear();
      pieces_.clear();
      piece_ = 0;
    } else {
      window_.erase(0, size_t(decided_ - base_));
      pieces_.erase(pieces_.begin(), pieces_.begin() + std::ptrdiff_t(piece_));
      piece_ = 0;
    }
    base_ = decided_;
  }

  void scan() {
    while (at_ < total()) {
      const size_t i = size_t(at_ - base_);
      if (stage_ == Stage::tag) {
        if (read_tag(window_[i])) ++at_;
        continue;
      }
      if (stage_ == Stage::end) return;
      if (!lead_) {
        const size_t next = patterns(stage_).next(window_, i);
        at_ += int64_t(next - i);
        if (next == window_.size()) return;
      }
      const char c = window_[size_t(at_ - base_)];
      ++at_;
      const AnswerPattern* match = patterns(stage_).step(c, spelling_);
      if (match != nullptr) {
        lead_ = false;
        take_match(*match);
      } else if (lead_ && c == '\n') {
        patterns(stage_).restart();
        drop();
      } else {
        lead_ = false;
      }
    }
  }

  /// Everything up to `at_` is dropped.
  void drop() {
    close_run();
    take(at_, Action::drop);
    last_ = Action::drop;
  }

  void take_match(const AnswerPattern& match) {
    take(at_ - int64_t(patterns(stage_).match_bytes()), default_action());
    // What a match gives out belongs to the chunk in which it began, and waits for the rest of that one only.
    const bool chunk_is_over = pieces_[piece_].end <= at_;
    apply(match.effect, match.number);
    if (chunk_is_over) close_run();
  }

  void apply(Effect effect, int number) {
    switch (effect) {
      case Effect::stop:
        stopped_ = true;
        stop_ = number;
        close_run();
        return enter(Stage::end);
      case Effect::open_fence: return drop(), enter(Stage::json);
      case Effect::open_json: {
        const auto bracket = std::string_view(window_).substr(size_t(at_ - 1 - base_), 1);
        drop();
        emit(Delta::Kind::content, bracket);
        run_.input_begin = at_ - 1;
        return enter(Stage::json);
      }
      case Effect::close_fence: return drop(), enter(Stage::json_done);
      case Effect::open_calls:
        drop();
        enter(Stage::calls);
        // The marker that opened the block may be that of a call whose block has no tag of its own.
        return lenient_ ? patterns(Stage::calls).resume_after(call_opening_) : void();
      case Effect::end_thinking: {
        const bool from_reasoning = stage_ == Stage::reason;
        drop();
        return enter(Stage::text, from_reasoning);
      }
      case Effect::begin_call:
        drop();
        name_.clear();
        return enter(Stage::name);
      case Effect::announce: return drop(), announce();
      case Effect::begin_parameter: return drop(), begin_parameter(), enter(Stage::key);
      case Effect::close_call: return drop(), close_call();
      case Effect::end_key:
        drop();
        emit(Delta::Kind::arguments, ": ");
        return enter(Stage::type);
      case Effect::begin_string: return drop(), begin_value(true);
      case Effect::begin_raw: return drop(), begin_value(false);
      case Effect::end_value: return drop(), end_value();
      case Effect::end_block: return drop(), enter(Stage::end);
      case Effect::invoke_tag:
      case Effect::parameter_tag: return drop(), begin_tag(effect == Effect::invoke_tag);
      case Effect::invoke_name:
        drop();
        begin_tag(true);
        tag_.named = true;
        tag_.target = Tag::Target::name;
        tag_.step = Tag::Step::quoted;
        return;
      case Effect::parameter_name:
        drop();
        begin_tag(false);
        tag_.attribute = "name";
        return begin_attribute_value();
      case Effect::end_skipped_call: return drop(), enter(Stage::calls);
      case Effect::end_skipped_value: return drop(), enter(Stage::args);
    }
  }

  // -- calls ----------------------------------------------------------------------------------------------------------

  void announce() {
    ++announced_;
    in_call_ = true;
    parameters_ = 0;
    keys_.clear();
    const auto found = required_.find(name_);
    needed_ = found == required_.end() ? nullptr : &found->second;
    emit(Delta::Kind::call, name_);
    enter(Stage::args);
  }

  void begin_parameter() {
    emit(Delta::Kind::arguments, parameters_ > 0 ? ", " : "{");
    ++parameters_;
    key_.clear();
  }

  void begin_value(bool string) {
    if (string) emit(Delta::Kind::arguments, "\"");
    raw_.clear();
    enter(string ? Stage::string_value : Stage::raw_value);
  }

  void end_value() {
    if (stage_ == Stage::string_value) {
      emit(Delta::Kind::arguments, "\"");
    } else if (lenient_) {
      if (!is_json(raw_)) {
        ++repaired_;
        std::string quoted;
        append_json_string(quoted, raw_);
        raw_ = std::move(quoted);
      }
      emit(Delta::Kind::arguments, raw_);
    }
    if (needed_ != nullptr) keys_.push_back(key_);
    enter(Stage::args);
  }

  void close_call() {
    emit(Delta::Kind::arguments, parameters_ > 0 ? "}" : "{}");
    run_ends_call_ = true;
    in_call_ = false;
    ++complete_;
    enter(Stage::calls);
  }

  bool has_required_parameters() const {
    return needed_ == nullptr || std::all_of(needed_->begin(), needed_->end(), [this](const std::string& name) {
             return std::find(keys_.begin(), keys_.end(), name) != keys_.end();
           });
  }

  // -- tags (lenient) -------------------------------------------------------------------------------------------------

  void begin_tag(bool of_call) {
    tag_.of_call = of_call;
    tag_.named = tag_.flagged = false;
    tag_.step = Tag::Step::start;
    tag_.flag.clear();
    if (of_call) name_.clear();
    enter(Stage::tag);
  }

  bool in_key() const { return tag_.target == Tag::Target::name && !tag_.of_call; }

  void begin_attribute_value() {
    tag_.step = Tag::Step::before_value;
    tag_.target = Tag::Target::nothing;
    if (tag_.attribute == "name" && !tag_.named) {
      tag_.target = Tag::Target::name;
      tag_.named = true;
      if (!tag_.of_call) begin_parameter();
    } else if (tag_.attribute == "string" && !tag_.flagged) {
      tag_.target = Tag::Target::flag;
      tag_.flagged = true;
    }
  }

  /// Takes the bytes before `end` as part of the attribute's value.
  void take_value(int64_t end) {
    const auto bytes = std::string_view(window_).substr(size_t(decided_ - base_), size_t(end - decided_));
    if (in_key()) {
      key_ += bytes;
      return take(end, Action::escaped);
    }
    if (tag_.target == Tag::Target::name) return take(end, Action::name);
    if (tag_.target == Tag::Target::flag && tag_.flag.size() < kLongestKnownWord) tag_.flag += bytes;
    take(end, Action::drop);
  }

  /// A quote around a value, or the place of one that is not there.
  void take_quote(int64_t end) {
    if (!in_key()) return take(end, Action::drop);
    if (end > decided_) return take(end, Action::verbatim);
    open_run(Delta::Kind::arguments);
    text_ += '"';
  }

  void end_attribute_value() {
    if (in_key()) emit(Delta::Kind::arguments, ": ");
    tag_.target = Tag::Target::nothing;
    tag_.step = Tag::Step::between;
  }

  void end_tag() {
    take(at_ + 1, Action::drop);
    if (tag_.of_call) return tag_.named ? announce() : enter(Stage::skipped_call);
    if (!tag_.named) return enter(Stage::skipped_value);
    begin_value(tag_.flag != "false");
  }

  /// Reads the byte at `at_`. False when it was not taken: it is to be read again in the state that follows.
  bool read_tag(char c) {
    using Step = Tag::Step;
    switch (tag_.step) {
      case Step::start:
        if (!is_blank(c) && c != '/' && c != '>') {  // "<D invoked": no tag
          enter(tag_.of_call ? Stage::calls : Stage::args);
          return false;
        }
        tag_.step = Step::between;
        return false;
      case Step::between:
        if (c == '>') return end_tag(), true;
        if (!is_blank(c) && c != '/') {
          tag_.attribute.assign(1, c);
          tag_.step = Step::name;
        }
        break;
      case Step::name:
        if (c == '=') {
          begin_attribute_value();
        } else if (is_blank(c)) {
          tag_.step = Step::after_name;
        } else if (c == '/' || c == '>') {
          tag_.step = Step::between;
          return false;
        } else if (tag_.attribute.size() < kLongestKnownWord) {
          tag_.attribute += c;
        }
        break;
      case Step::after_name:
        if (c == '=') {
          begin_attribute_value();
        } else if (!is_blank(c)) {
          tag_.step = Step::between;
          return false;
        }
        break;
      case Step::before_value:
        if (is_blank(c)) break;
        if (c == '"') {
          tag_.step = Step::quoted;
          return take_quote(at_ + 1), true;
        }
        take_quote(at_);
        tag_.step = Step::bare;
        return false;
      case Step::quoted:
        if (c != '"') return take_value(at_ + 1), true;
        tag_.step = Step::quote;  // the end only if the next byte says so
        return true;
      case Step::quote:
        if (is_blank(c) || c == '/' || c == '>') {
          take_quote(at_);
          end_attribute_value();
          return false;
        }
        take_value(at_);
        tag_.step = Step::quoted;
        return false;
      case Step::bare:
        if (!is_blank(c) && c != '>') return take_value(at_ + 1), true;
        take_quote(at_);
        end_attribute_value();
        return false;
    }
    take(at_ + 1, Action::drop);
    return true;
  }

  // -- the end --------------------------------------------------------------------------------------------------------

  void finish() {
    begin_call();
    if (stopped_) return;
    if (lenient_ && in_call_) {
      settle_call();
    } else if (stage_ != Stage::tag) {
      take(total(), default_action());
    }
    close_run();
    decided_ = total();
    stage_ = Stage::end;
    stopped_ = true;
    forget_decided();
  }

  /// D-12. What is decided of a value still goes out, what is held does not: it may be half a closing tag.
  void settle_call() {
    close_run();
    in_call_ = false;
    const bool between_parameters = stage_ == Stage::args || (stage_ == Stage::tag && !tag_.named);
    if (between_parameters && parameters_ > 0 && has_required_parameters()) {
      emit(Delta::Kind::arguments, "}");
      run_ends_call_ = true;
      ++complete_;
    } else {
      emit(Delta::Kind::call_dropped, "");
      ++dropped_;
    }
  }

  struct Piece {
    int64_t end;  // input bytes of the answer up to its end
    bool empty;
  };

  const bool lenient_, json_;
  std::map<std::string, std::vector<std::string>, std::less<>> required_;
  StagePatterns patterns_;
  const std::string call_opening_;

  Stage stage_ = Stage::end;
  bool lead_ = false;  // newlines at the beginning of this state are dropped
  Spelling spelling_ = Spelling::text;
  Action last_ = Action::undecided;  // of the last decided byte

  std::string window_;         // bytes from `base_` on
  int64_t base_ = 0;           // positions count the bytes of the answer
  int64_t decided_ = 0;        // what is before is given out, dropped, or in the open run
  int64_t at_ = 0;             // what is before was read
  std::vector<Piece> pieces_;  // chunks in the window
  size_t piece_ = 0;           // the one of `decided_`

  std::string text_;
  std::vector<Run> runs_;
  Run run_ = {};  // the open one, its text at the end of text_
  bool open_ = false;
  bool run_is_whole_ = false;   // nothing joins it
  bool run_ends_call_ = false;  // a call_end follows it

  std::string name_, key_, raw_;
  Tag tag_;
  int announced_ = 0, complete_ = 0, dropped_ = 0, parameters_ = 0;
  bool in_call_ = false;
  const std::vector<std::string>* needed_ = nullptr;  // required parameters of the call
  std::vector<std::string> keys_;                     // complete parameters, when somebody needs them
  int64_t repaired_ = 0;
  bool stopped_ = false;
  int stop_ = -1;
};

AnswerParser::AnswerParser(const Parsing& parsing) : state_(std::make_unique<State>(parsing)) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

void AnswerParser::push(std::string_view bytes, Spelling spelling) { state_->push(bytes, spelling); }
void AnswerParser::finish() { state_->finish(); }
const std::vector<AnswerParser::Run>& AnswerParser::runs() const { return state_->runs_; }
std::string_view AnswerParser::text(const Run& run) const {
  return std::string_view(state_->text_).substr(run.begin, run.end - run.begin);
}
bool AnswerParser::stopped() const { return state_->stopped_; }
int AnswerParser::stop_sequence() const { return state_->stop_; }
int64_t AnswerParser::settled() const { return state_->open_ ? state_->run_.input_begin : state_->decided_; }
int64_t AnswerParser::taken() const { return state_->at_; }
int AnswerParser::calls_announced() const { return state_->announced_; }
int AnswerParser::calls_complete() const { return state_->complete_; }
int AnswerParser::calls_dropped() const { return state_->dropped_; }
int64_t AnswerParser::arguments_repaired() const { return state_->repaired_; }

}  // namespace fathom::recipe
